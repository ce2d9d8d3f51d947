"""Subjects and groups: the registry creates, changes and deletes them, and looks them up."""
