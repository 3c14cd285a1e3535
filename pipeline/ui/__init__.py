"""Groups seen by people: pages in a browser, one group as a file, and a table in a terminal.

`ui` serves pages, `report` writes a group's page as one self-contained file, and `watch` shows the
groups in a terminal. All three read the tables through DuckDB, without a JVM, and hold what they
read as a snapshot (`snapshot`). Changes are requests to the running coordinator, made by
`pipeline.admin` after a preview (`previews`), and only where the server was started with
`--allow-changes`.

Starlette and uvicorn serve, Jinja2 escapes whatever it puts into a page: parsing HTTP, ending
connections in order and escaping are what a parser of our own would get wrong. They are the extra
`ui`; this package imports neither Spark nor pandas.
"""
