"""The checks of ``reconcile``: each compares what two logs say of the same messages."""
