"""Works without requests: schedules, timers and streams invoke these functions."""
