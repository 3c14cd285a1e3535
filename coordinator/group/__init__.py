"""The group coordinator, the broker's side of the classic consumer-group protocol."""
