"""Queues: put, take and lease."""
