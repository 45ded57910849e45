"""The clients of a chaos run: producers, stream consumers, the load, the final reads."""
