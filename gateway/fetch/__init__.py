"""Fetch: from positions to records in the form that a client asks for."""
