"""Creates, changes, deletes and looks up subjects and groups."""
