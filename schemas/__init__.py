"""The shapes of things: messages, records, error codes and the tables derived from them."""
