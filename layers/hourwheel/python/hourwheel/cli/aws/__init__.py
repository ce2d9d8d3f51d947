"""Writes policies and grants for deployments on AWS, and says what they cost."""
