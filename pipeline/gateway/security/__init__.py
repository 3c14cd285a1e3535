"""Who a client is: TLS, users and their passwords, and the SASL exchange that names a principal."""
