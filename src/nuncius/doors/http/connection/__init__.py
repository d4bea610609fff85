"""One connection: HTTP, WebSocket, content codings, malformed requests."""
