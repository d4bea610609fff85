"""Frames of STOMP 1.0 to 1.2: codec, headers, versions and rendering."""
