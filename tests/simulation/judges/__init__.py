"""Judges of a simulated run: histories, checkers, and the planted bugs that they must find."""
