"""The decisions of push: order, retries, signatures, allowed targets; no I/O, no clock, no randomness."""
