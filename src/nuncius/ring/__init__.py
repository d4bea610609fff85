"""Tribbler's key-value ring: storage nodes, ownership, leases and cache."""
