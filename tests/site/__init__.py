"""The site of make docs, as it was built."""
