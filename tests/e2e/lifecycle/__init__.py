"""The life of a node process: starts, refused starts, shards, kills, stops, reloading."""
