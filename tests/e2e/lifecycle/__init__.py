"""The life of a node process: starts, failed starts, shards, kills, stops, reloading."""
