"""Runs whose topic is deleted and created again under the same name."""
