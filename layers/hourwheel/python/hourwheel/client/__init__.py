"""Producer and consumer."""
