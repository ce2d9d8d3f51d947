"""Simulates deterministically: the real library runs over a simulated store, and a seed determines a run."""
