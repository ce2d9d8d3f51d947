"""The sweeper, which runs each minute, and the erasure of deleted subjects and groups."""
