"""Judges of a simulated run: histories, checkers, planted bugs that they must find."""
