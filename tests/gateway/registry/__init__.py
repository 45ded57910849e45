"""Tests of gateway/registry."""
