"""The byte formats: record batches, indexes, checksums, file names, compression. Pure except for small files."""
