"""Computes the costs of messages on AWS: counts every request of the real code on an engine that reports consumed
capacity, and multiplies with the list prices in ``bench/prices.json``."""
