"""Load: a benchmark, locust users that check what they read, and peers to compare with.

Speaks HTTP to the node under test, as strangers do, and imports nothing of it. docs/bench.md tells how to use it.
"""
