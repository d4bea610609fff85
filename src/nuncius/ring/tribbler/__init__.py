"""Tribbler, the application on the ring: users, subscriptions, tribbles and timelines."""
