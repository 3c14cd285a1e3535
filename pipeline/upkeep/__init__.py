"""Upkeep of the tables: compaction, retention, VACUUM and repair.

A node runs compaction and retention, with VACUUM, on a schedule. The package works on committed
files only.
"""
