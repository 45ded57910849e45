"""Who may call and what: tokens, the Host rule, the Origin rule."""
