"""One connection: corked writes, content codings, malformed requests."""
