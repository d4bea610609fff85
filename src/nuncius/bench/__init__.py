"""Benchmarks: load generators in processes of their own, limits taken in the same run, results as JSON."""
