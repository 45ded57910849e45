"""`penstock tier` for a store: status, verify, repair and restore, without a node."""
