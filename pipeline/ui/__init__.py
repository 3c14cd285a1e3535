"""The user interface: pages for a browser, one group as a file, and a table in a terminal.

`ui` serves pages, `report` writes a group's page as one self-contained file, and `watch` shows the
groups in a terminal. All three read the tables through DuckDB, without a JVM, and keep the result
as a snapshot in memory (`snapshot`). Changes are possible only if the server was started with
`--allow-changes`. After a preview (`previews`), `pipeline.admin` sends them as requests to the
running coordinator.

Starlette and uvicorn serve the pages, and Jinja2 escapes all inserted values. This project does not
implement HTTP parsing, orderly connection shutdown or escaping, because mistakes are likely. The
libraries are the extra `ui`. This package imports neither Spark nor pandas.
"""
