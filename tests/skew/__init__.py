"""Nodes whose clocks differ. 500 runs by default; `make skew-long` uses 10,000."""
