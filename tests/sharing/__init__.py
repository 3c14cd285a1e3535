"""Separate processes that share a table; some are killed meanwhile."""
