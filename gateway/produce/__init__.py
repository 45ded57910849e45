"""Produce: from the bytes of a body to record batches, and to their positions."""
