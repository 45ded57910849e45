"""Administration over HTTP: topics, cluster operations, fencing, what a node says of itself."""
