"""What the store has to read: topics, segments, slices of them."""
