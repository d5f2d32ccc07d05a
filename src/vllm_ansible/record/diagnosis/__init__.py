"""Name a failure by what it wrote in a log."""
