"""Positions of a job beside its runs: shows them, finds them by time, and moves them as planned, committed steps."""
