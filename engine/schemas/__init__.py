"""JSON Schemas of topics: which are usable, which values follow them, which changes keep earlier values valid."""
