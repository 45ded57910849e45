"""Recipes of loops from topic to topic, whose workers, shards and node are killed, and the judge of their outputs."""
