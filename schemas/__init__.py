"""The data that clients, coordinators and tables exchange.

`messages` (requests and responses), `apis` (the table of APIs), `records` (the offsets topic, the
audit log) and `errors` are msgspec Structs and enums. `tables` derives the Arrow schemas of the
Delta tables from them, `decoding` decodes a request, and `kafka` reads and writes Kafka's binary
formats. Nothing here decides anything, does I/O, or knows `coordinator` or `pipeline`.
"""
