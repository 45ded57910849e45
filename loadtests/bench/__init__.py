"""`python -m loadtests.bench`: measures a node beside a bare function."""
