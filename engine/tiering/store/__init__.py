"""The object store: its interface, a directory, S3."""
