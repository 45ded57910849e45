"""The status of a node and its cluster, for people: findings, rows of topics, the last hour, and who asks."""
