"""Filters: conditions on records, evaluated where the records are stored."""
