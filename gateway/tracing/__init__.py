"""Tracing: spans of sampled requests, and their way to a collector by OTLP."""
