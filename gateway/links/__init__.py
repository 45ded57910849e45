"""Calls between the processes of a node and of a cluster."""
