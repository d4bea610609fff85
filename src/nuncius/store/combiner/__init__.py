"""Batches: while one call is in flight, a lane collects the next."""
