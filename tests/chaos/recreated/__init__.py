"""A topic beside the run's that is deleted and created again under consumers of every kind, and the judge of it."""
