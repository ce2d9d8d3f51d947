"""Parts of the job ``replay``."""
