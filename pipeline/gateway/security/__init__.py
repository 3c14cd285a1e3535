"""Authentication of clients: TLS, the file of users, and the SASL mechanisms."""
