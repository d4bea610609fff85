"""Nuncius: a message broker on PostgreSQL."""

__version__ = "0.1.0"
