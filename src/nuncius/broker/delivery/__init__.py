"""Delivery: how entries of topics reach their subscribers."""
