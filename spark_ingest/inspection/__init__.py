"""What a person looks at: records of the store, counts of commits beside those of the log, the report of a job."""
