"""Locust users that check what they read."""
