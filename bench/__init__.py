"""Benchmarks: medians and ratios from one run, on the machine at hand."""
