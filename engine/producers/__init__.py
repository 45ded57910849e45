"""Checks of an append: sequences, idempotency keys, fencing tokens, and their snapshots."""
