"""This node as a member of its cluster: sessions, registration, the topics it hosts."""
