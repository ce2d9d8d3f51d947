"""The log: counter and write-once rows, batches, segments."""
