"""Leaders, followers and what an acknowledgement waits for. Uses engine, never gateway."""
