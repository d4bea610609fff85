"""Listeners: one package per protocol, from bytes to broker calls and back."""
