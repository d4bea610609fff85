"""Deliver entries of topics to subscribers."""
