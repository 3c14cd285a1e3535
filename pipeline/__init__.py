"""All that does I/O: Spark, Delta tables, processes, clocks; what is decided is `coordinator`'s.

Imports between the packages point one way: the contract "Imports within pipeline point one way" in
pyproject.toml lists them from top to bottom. Its single modules, as `clock`, `errors`, `settings`
and `terminal`, are the ground that all packages may use. Programs import `group_coordinator` alone.
"""
