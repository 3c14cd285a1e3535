"""An S3 server that is a program of its own, and a proxy before it that counts and fails."""
