"""Runs whose coordination store is emptied, and rebuilt from the data directories."""
