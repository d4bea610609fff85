"""Checks of a node, a store and this machine."""
