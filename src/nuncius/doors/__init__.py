"""Doors: a protocol each, from bytes to broker calls and back."""
