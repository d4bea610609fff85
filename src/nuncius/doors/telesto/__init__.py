"""The Telesto port: the native protocol, and place for the two framings of Telesto itself."""
