"""The workers of docs/examples/workers, in all languages, share one topic while they come, go, hang and die."""
