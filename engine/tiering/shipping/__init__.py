"""Uploads sealed segments to the store and removes from it what has expired."""
