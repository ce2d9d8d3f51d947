"""Implements the ports over DynamoDB, S3, SQS, Lambda and EventBridge."""
