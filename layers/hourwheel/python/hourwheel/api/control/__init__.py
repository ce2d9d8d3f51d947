"""Serves the control plane: the calls that neither send, pull nor settle messages."""
