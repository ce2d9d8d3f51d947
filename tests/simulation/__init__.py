"""Deterministic simulation: the real library over a simulated store, one seed, one run."""
