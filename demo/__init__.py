"""``make demo``: a month of real flights goes through the queue, and every message is accounted for."""
