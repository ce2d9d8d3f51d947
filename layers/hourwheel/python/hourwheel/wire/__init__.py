"""Measures, compresses, checks and signs the bodies of requests and answers."""
