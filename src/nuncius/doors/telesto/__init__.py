"""The Telesto port: the two framings of Telesto itself, and the entry to the native protocol."""
