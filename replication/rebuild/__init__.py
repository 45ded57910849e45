"""Rebuilds the content of a lost coordination store from the data directories of a stopped cluster."""
