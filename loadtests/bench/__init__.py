"""`make bench`, `make bench-peers`: Penstock beside a bare function, Kafka, NATS JetStream and Redis streams."""
