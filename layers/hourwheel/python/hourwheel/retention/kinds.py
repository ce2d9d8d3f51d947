"""Names the kinds of rows in the archive: of logs of messages, of pull logs, of dispatch logs, and of the catalog of
subjects and groups."""

MESSAGES, PULLS, DISPATCHES, CATALOG = "messages", "pulls", "dispatches", "catalog"
