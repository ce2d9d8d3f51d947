"""The sweeper: what is done each minute, and what a deleted subject or group leaves."""
