"""Tests the contract of the ports on every adapter."""
