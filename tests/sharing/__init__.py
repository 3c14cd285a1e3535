"""Processes that share a table: each is one of its own, and one may be killed meanwhile."""
