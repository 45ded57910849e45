"""Large counts. 500 of each thing by default; `make scale-long` uses 10,000.

Tests assert counts, handles, calls and processor time, never wall time.
"""
