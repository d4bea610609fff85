"""Names reserved by the store; its procedures know them, too."""

JOBS = "nuncius:"
"""Subscribers whose names begin with this are jobs."""
