"""The client for synchronous programs: every call waits for its result."""
