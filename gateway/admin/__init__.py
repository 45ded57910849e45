"""Administration over HTTP: topics, cluster operations, fencing, descriptions of a node."""
