"""Serves requests: the adapter of the HTTP server, the route table, and the middleware around each request."""
