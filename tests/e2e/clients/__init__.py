"""Clients that misbehave or are many: no reads, overload, unknown bytes, a browser."""
