"""Test doubles of the disk: recording, faulty and crashing. A running node never imports them."""
