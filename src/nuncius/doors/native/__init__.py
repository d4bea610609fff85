"""The native protocol: sessions, waiting requests, and deliveries."""
