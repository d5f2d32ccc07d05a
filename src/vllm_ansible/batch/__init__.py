"""Send many tagged prompts to a served model, and keep every answer by its tag."""
