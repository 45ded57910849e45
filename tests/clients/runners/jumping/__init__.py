"""Clocks that jump an hour to and fro, twenty times a second, for a client in each language and for a node."""
