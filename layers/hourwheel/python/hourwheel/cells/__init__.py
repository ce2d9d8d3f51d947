"""Keeps the cells of a deployment, and moves queues between them."""
