"""Delta tables: opening, appending, following, rewriting, and keeping their logs short.

Every package above may import from here. Nothing here knows which tables this project has, what
their columns mean, or who coordinates whom: a function is given a URI, a folder or an open table.
Spark and pandas are never imported. COMMITS.md says how a table is written.
"""
