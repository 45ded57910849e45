"""The commands of the distribution `penstock-server`: serve, token, segment and ingest. Its entry points name them."""
