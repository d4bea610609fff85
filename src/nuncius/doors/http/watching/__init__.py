"""Metrics and statistics of a node."""
