"""Makes the calls of the HTTP API, one module for each family; ``Api`` joins the families."""
