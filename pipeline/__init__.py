"""I/O: Spark, Delta tables, processes and clocks. The package `coordinator` makes the decisions.

Imports between the packages point one way: the contract "Imports within pipeline point one way" in
pyproject.toml lists the packages from top to bottom. All packages may import the modules of this
folder, such as `clock`, `errors`, `settings` and `terminal`. Programs import only
`group_coordinator`.
"""
