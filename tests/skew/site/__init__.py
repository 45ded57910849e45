"""What processes under a shifted clock have on their PYTHONPATH."""
