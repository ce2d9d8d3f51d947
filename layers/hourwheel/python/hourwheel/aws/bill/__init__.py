"""Computes what a workload costs in a month on AWS, from counted requests, beside other services."""
