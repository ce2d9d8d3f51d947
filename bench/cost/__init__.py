"""What messages cost on AWS: every request of the real code counted on an engine that tells consumed capacity, times
the list prices in ``bench/prices.json``."""
