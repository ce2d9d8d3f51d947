"""Runs the functions of the API on Lambda, and says what a deployment on AWS may do and costs."""
