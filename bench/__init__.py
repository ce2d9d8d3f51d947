"""Measures the product: medians and ratios from one run, on this machine."""
