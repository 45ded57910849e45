"""Authentication and authorization: bearer tokens, access rules, the Host rule, the Origin rule."""
