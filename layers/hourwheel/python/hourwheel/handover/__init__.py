"""Hand-over: messages move from a source record into target logs exactly once."""
