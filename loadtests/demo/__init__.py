"""The demo: the whole job on a year of flights out of New York. `make demo` plays it.

Speaks HTTP to a node it starts, runs `penstock ingest run` as anybody would, and asks Spark about the tables. Every
number it prints was measured in the run. What it shows and how to read it: docs/demo.md.
"""
