"""Delivers the messages of groups to targets, for groups that have one."""
