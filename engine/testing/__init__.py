"""Test doubles of the disk (recording, faulty, crashing) and of the object store. A running node never imports them."""
