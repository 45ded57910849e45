"""The messages of Kafka's protocol, read and written by tables."""
