"""What the nodes of a cluster agree upon: its topics, partition states, members and operations."""
