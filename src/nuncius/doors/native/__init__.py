"""The native protocol: sessions, what waits, and what is delivered."""
