"""HTTP: the report's partitioned queue, an API of our own under /v1, and the way in for WebSockets."""
