"""Commands of subjects, their queues, and the cells of these."""
