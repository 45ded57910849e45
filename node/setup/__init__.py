"""How a process of a node is set up: settings, listeners, logs, limits, reloading."""
