"""Tests of engine/encodings."""
