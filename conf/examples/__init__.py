"""Programs to begin with; the tests run them."""
