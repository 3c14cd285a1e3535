"""Servers of stores in separate processes, and a proxy that counts, delays and breaks requests."""
