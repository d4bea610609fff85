"""The balancer: a reverse proxy in front of write and read managers."""
