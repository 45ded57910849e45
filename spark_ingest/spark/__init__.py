"""Spark as an engine: its context, its environment, the execution of tasks."""
