"""HTTP: the report's partitioned queue, the API under /v1, and WebSockets."""
