"""The only place that knows Spark, Delta, a process or a socket."""
