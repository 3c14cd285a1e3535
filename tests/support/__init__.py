"""Helpers of tests, benchmarks and trials: loads, a real broker, and JVMs that start fast."""
