"""The listener of Kafka's protocol: its connections, and its APIs on the same stages as HTTP."""
