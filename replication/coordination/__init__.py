"""The coordination store: a few versioned keys that all nodes agree on, behind one interface."""
