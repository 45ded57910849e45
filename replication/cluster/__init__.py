"""The state that the nodes of a cluster share: topics, partition states and members, and operations on them."""
