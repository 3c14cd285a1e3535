"""Programs that consume a topic by an unmodified client: each record worked on becomes a line.

A line is the record's partition, offset and `n`, the column of its row. Records are committed after
their lines are written, so what a process is killed over is given to another member. Each client
has a module, so that no process imports the others.
"""
