"""The commands of `penstock ingest` for daily operation: positions, records, reports, ranges that come again."""
