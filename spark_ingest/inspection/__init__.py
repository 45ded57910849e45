"""Views of a job for a person: records of the store, counts of commits beside those of the log, and a report."""
