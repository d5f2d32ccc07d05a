"""What a model is made of, read from its configuration or from the headers of its weights."""
