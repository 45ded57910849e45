"""Encodings of values: Avro and Protobuf within bounds, their JSON, and the schemas of a registry."""
