"""Load generators: programs of their own, started by the benchmarks."""
