"""Consumer groups: the coordinator of each group, and the requests that reach it from any process."""
