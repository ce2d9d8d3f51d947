"""Runs jobs: their options, sessions of Spark, scratch files, failures and exit statuses."""
