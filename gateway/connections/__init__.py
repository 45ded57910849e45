"""Connections and their limits: unread answers, long polls, memory, request order."""
