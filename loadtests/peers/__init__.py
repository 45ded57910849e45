"""Servers to compare Penstock with, each a process of its own."""
