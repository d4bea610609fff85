"""Tribbler: the key-value ring and its application, by Go RPC."""
