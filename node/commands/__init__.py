"""The commands of the distribution `penstock-server`: serve, token, segment, coordination and ingest.

Its entry points name them.
"""
