"""What the ports promise, stated on every adapter."""
