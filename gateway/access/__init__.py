"""Authentication and authorization: bearer tokens, the Host rule, the Origin rule."""
