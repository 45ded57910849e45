"""HTTP messages: queries, bodies, content negotiation, problem documents."""
