"""Benchmarks: each figure beside a floor that is measured in the same run."""
