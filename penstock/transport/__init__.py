"""Carries requests to the nodes of a cluster: HTTP, retries, the addresses of nodes and leaders."""
