"""Steps after the commit: archives of the history, and retention of tables."""
