"""The clients of a chaos run: producers, readers of streams, the load, the last reads."""
