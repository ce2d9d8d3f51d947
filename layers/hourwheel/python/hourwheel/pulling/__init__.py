"""Claims messages for consumers and answers their pulls."""
