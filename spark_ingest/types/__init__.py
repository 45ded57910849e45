"""The types of columns: of JSON values, and those that payloads declare. Pure; no record, no Arrow."""
