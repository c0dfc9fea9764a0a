"""The server: HTTP in front, a durable queue in the middle, an engine behind."""
