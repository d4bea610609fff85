"""Reliable pub/sub over ZeroMQ."""
