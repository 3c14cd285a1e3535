"""What tests, benchmarks and trials share: loads, a real broker, and JVMs that start fast."""
