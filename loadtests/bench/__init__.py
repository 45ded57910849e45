"""`python -m loadtests.bench.__main__`: measures a node beside a bare function."""
