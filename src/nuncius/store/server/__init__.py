"""The embedded PostgreSQL server: its binaries, data directory, settings and process."""
