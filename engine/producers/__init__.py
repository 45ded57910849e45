"""What an append is checked against: sequences, idempotency keys, fencing tokens, and their snapshots."""
