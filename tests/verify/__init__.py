"""What ``make verify`` runs and pytest does not: fresh machines, and commands of README there."""
