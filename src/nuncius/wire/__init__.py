"""Packets of the native protocol and their codec, shared by the client and the listener."""
