"""Connections and their limits: unread answers, idle connections, request order."""
