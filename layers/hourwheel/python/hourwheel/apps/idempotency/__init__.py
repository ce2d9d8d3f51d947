"""Implements the stores by which a consumer handles each message once."""
