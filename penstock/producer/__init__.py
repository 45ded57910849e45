"""Produces records: batches, the lanes that send them, sequence numbers, partitioners and serializers."""
