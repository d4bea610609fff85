"""Load generators: separate programs that the benchmarks start."""
