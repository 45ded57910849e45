"""Tests of engine/schemas."""
