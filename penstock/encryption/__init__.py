"""Encryption of values by the client: the format of an encrypted record, key rings, and the data keys in use."""
