"""The audit trail: who changed what, and who was denied, as CloudEvents in files of the node."""
