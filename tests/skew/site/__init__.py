"""Modules on the PYTHONPATH of processes under a shifted clock."""
