"""Public listeners: their file, their TLS, and whom a client certificate names."""
