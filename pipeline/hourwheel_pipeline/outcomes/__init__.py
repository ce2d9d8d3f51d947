"""Says what came of a job: its exit status, its sentence, its metrics."""
