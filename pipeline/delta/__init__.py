"""Delta tables: opening, appending, following, rewriting, and keeping their logs short.

Every package above may import from here. The package knows neither this project's tables nor the
meaning of their columns, nor how nodes are coordinated. A function is given a URI, a folder or an
open table. Spark and pandas are never imported. COMMITS.md says how a table is written.
"""
