"""Judge whether hosts can serve, from one look at each of them."""
