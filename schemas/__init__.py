"""The data that clients, coordinators and tables exchange.

`messages` (requests and responses), `apis` (what each API is), `records` (the offsets topic, the
audit log) and `errors` are msgspec Structs and enums that any module may import, whatever engine it
runs in. `tables` derives the Arrow schemas of the Delta tables from them, `decoding` reads a
request, and `kafka` reads and writes Kafka's own bytes.
Nothing here decides anything, does I/O, or knows `coordinator` or `pipeline`.
"""
