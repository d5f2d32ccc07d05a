"""What a model takes on given machines, how fast it would be, and which layout to run."""
