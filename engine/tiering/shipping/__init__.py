"""Uploads sealed segments to the store and removes expired ones from it."""
