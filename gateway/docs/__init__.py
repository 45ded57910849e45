"""The page at /docs, made from the contract."""
