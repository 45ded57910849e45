"""The decisions of consumer groups as a synchronous core: calls in, answers and records out; no I/O, no clock."""
