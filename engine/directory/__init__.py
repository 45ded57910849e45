"""Keeps a node's data besides logs: data directories, their topics, checkpoints."""
