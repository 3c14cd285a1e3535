"""Trial of malformed requests: they must not affect other clients' requests.

`trial.run_malformed` runs it. `cells` makes the values, `files` the Parquet files, and `huge` the
oversized requests. `answering` is a coordinator without Spark: the stream's source, stateful
function and sink in this process.
"""
