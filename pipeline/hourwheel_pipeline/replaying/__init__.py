"""Divides the job ``replay`` into options, selection, chunks, probe and progress."""
