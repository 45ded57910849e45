"""Sealed segments leave for an object store here, and are read back from it. The engine core never imports this."""
