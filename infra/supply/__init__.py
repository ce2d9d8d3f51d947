"""Lists and checks the third-party packages of the product, as the locks pin them. Imports none of them."""
