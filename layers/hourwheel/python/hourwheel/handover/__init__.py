"""Hand-over moves messages from a source record into target logs exactly once."""
