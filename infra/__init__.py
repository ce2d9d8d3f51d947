"""Deploys the queue: one construct for each capability, and the stack that joins them."""
