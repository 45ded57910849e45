"""Measures what requests of different sizes cost a node, for the capacity page and `penstock doctor --plan`."""
