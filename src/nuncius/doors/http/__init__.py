"""HTTP: what browsers and plain clients speak. For now the way in for WebSockets, and a sign of life."""
