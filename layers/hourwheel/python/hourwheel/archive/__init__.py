"""The archive: every row of every log, kept in objects for as long as the operator likes."""
