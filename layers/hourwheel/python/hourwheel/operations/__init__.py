"""Carries out the operations of operators on cells and queues."""
