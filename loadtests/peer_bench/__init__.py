"""`make bench-peers`: Penstock beside Kafka, NATS JetStream and Redis streams, by the CPU time of the servers."""
