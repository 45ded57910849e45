"""Tests of the status of a node and its cluster."""
