"""Contains the checks of ``reconcile``: each compares the statements of two logs about the same messages."""
