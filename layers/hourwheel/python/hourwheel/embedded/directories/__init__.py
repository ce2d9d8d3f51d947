"""Opens data directories, and keeps them safe from other servers, full volumes and losses."""
