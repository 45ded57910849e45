"""Clients of Kafka's protocol that tell one story, each with its own library; `client_programs.py` has the story."""
