"""Subscriptions of a STOMP connection: delivery and acknowledgement."""
