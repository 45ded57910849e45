"""One running node: its processes, its place in the cluster, and how it starts and stops."""
