"""Keeps logs small and sound: retention, sealing, scrubbing and quarantine."""
