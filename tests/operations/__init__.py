"""Tests of what operators get with a release: alerts for Prometheus and their runbook."""
