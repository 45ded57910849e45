"""Schemas of a registry in the memory of a process: what values name is asked for once, off the loop."""
