"""Members of groups and callers of work queues in a chaos run, and the judge of their history."""
