"""The machine and the event loop as the engine uses them: disk, clock, background tasks, deadlines."""
