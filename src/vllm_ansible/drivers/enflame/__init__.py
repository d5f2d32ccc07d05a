"""What is done about Enflame's driver: differences, refusals and the decision, from one look."""
