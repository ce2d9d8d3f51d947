"""Push: groups whose messages are delivered to a target instead of being pulled."""
