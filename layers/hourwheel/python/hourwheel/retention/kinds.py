"""What the archive holds: rows of logs of messages, of pull logs, of dispatch logs; and the catalog."""

MESSAGES, PULLS, DISPATCHES, CATALOG = "messages", "pulls", "dispatches", "catalog"
