"""Tests what surrounds the code: the changelog, packages, workflows and hooks."""
