"""What a job writes: table files, schemas, their names."""
