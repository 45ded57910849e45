"""Examines and repairs the objects of a store without a node."""
