"""Names the kinds of rows in the archive: of logs of messages, of pull logs, of dispatch logs, and of the registry of
subjects and groups."""

MESSAGES, PULLS, DISPATCHES, REGISTRY = "messages", "pulls", "dispatches", "registry"
