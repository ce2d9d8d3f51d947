"""Implements the ports over SQLite, DynamoDB, S3, files, memory, HTTPS and the timers of AWS."""
