"""The user interface: pages for a browser, one group as a file, and a table in a terminal.

All three read the tables through DuckDB, without a JVM, and keep the result as a snapshot in memory
(`root_snapshot`). Changes are possible only with `--allow-changes`. After a preview (`previews`),
`pipeline.admin` sends them as requests to the running coordinator.

Starlette, uvicorn and Jinja2, the extra `ui`, parse HTTP, close connections and escape values,
because own code for these would have mistakes.
"""
