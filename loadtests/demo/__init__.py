"""The demo: the whole job on a year of flights out of New York. `make demo` plays it.

Speaks HTTP to a node that it starts, runs `penstock ingest run`, and queries the tables with Spark. Every number that
it prints was measured in the run.
"""


class DemoFailed(Exception):
    """The demo cannot go on. The text says why, in a line or with the end of a log."""
