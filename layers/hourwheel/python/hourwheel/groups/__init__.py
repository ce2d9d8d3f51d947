"""Shows and changes groups, for their operators: settings, lag, consumers, positions, stopped keys."""
