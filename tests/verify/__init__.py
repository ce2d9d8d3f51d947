"""What ``make fresh`` runs: commands of README on fresh machines."""
