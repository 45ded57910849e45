"""Clients of Kafka's protocol against real nodes."""
