"""Who a client is: TLS, users and their passwords, and SASL's mechanisms that prove a name."""
