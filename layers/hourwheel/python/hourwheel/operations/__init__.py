"""Carries out the operations of operators on cells, queues and groups, and reads the numbers that the console shows."""
