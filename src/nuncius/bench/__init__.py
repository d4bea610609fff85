"""Benchmarks: load generators in separate processes, limits measured in the same run, results as JSON."""
