"""Manages topics and the cluster."""
