"""Names that the store keeps for itself; its procedures know them, too."""

JOBS = "nuncius:"
"""Subscribers whose names begin with this are jobs."""
