"""The log of one partition: segments, positions in them, recovery and truncation."""
