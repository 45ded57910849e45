"""Turns values of records into JSON objects: decoders of other encodings, and transformers of members."""
