"""Reports: a page that needs nothing but itself."""
