"""Serves requests: makes them of what the HTTP server delivers, finds their routes, and surrounds each of them."""
