"""Keeps logs small and intact: retention, sealing, scrubbing and quarantine."""
