"""The output of a job: table files, schemas, their names."""
