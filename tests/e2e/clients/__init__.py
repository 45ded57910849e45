"""Clients that misbehave or overload: no reads, overload, random bytes, a browser."""
