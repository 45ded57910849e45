"""The processes of a node: the single process, the supervisor, shards and the worker."""
