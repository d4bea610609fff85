"""Subscriptions of a STOMP connection: what is delivered and what is acknowledged."""
