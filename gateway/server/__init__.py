"""The HTTP server: Granian's adapter, the route table, and what surrounds each request."""
