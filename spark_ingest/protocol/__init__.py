"""The exactly-once protocol of a job: plan, execute, commit, verify."""
