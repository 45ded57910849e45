"""From records to typed rows: JSON, types, event time."""
