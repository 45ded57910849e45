"""Executes the tasks of a plan on this machine, and what both engines share: one task with retries, its outcome."""
