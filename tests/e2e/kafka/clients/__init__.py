"""Clients of Kafka's protocol that run one story, each with its own library; `client_programs.py` has the story."""
