"""Share groups in the simulation: callers, their judge, and runs of their own."""
