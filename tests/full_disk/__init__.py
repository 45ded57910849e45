"""Nodes on real file systems of 24 MB, filled to the last byte under every kind of operation."""
