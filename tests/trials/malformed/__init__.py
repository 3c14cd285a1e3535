"""A trial: malformed requests, by the hundred thousand, cost nobody but their senders an answer.

`trial.run_malformed` is the way in. `cells` makes the values, `files` the Parquet files, `huge` the
requests whose size is the fault, and `answering` is a coordinator without Spark: the stream's own
source, stateful function and sink, in this process.
"""
