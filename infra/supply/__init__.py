"""What the product is made of: third-party packages, as the locks pin them. Needs nothing that the locks name."""
