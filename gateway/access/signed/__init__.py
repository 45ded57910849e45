"""Signed URLs: a short-lived right to read or write one topic, in a URL."""
