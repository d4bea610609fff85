"""The client for ordinary programs: every call waits for its answer."""
