"""Converts records to typed rows: JSON, types, event time."""
