"""What nodes agree upon: a small store of versioned keys, behind one interface."""
