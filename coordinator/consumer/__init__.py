"""The consumer's side of a group: its protocol, its assignors, its membership."""
