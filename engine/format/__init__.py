"""The byte formats: record batches, indexes, checksums, file names, compression. Pure but for small files."""
