"""What a node counts, for Prometheus."""
