"""Reads records back from the store, through a cache on the local disk."""
