"""Finds the leader of a partition, and brings requests to it while leadership moves."""
