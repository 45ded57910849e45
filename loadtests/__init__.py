"""Load: a benchmark, locust users that check what they read, and peers to compare with.

Speaks HTTP to the node under test and imports no module of the node. See docs/internals/bench.md.
"""
