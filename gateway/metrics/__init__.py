"""Metrics of a node, for Prometheus."""
