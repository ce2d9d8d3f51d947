"""Lists, redrives and drops dead letters."""
