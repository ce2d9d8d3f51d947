"""Archives every row of every log in objects, until the operator removes them."""
