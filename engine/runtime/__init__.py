"""The machine and the event loop as the engine sees them: disk, clock, background tasks, deadlines."""
