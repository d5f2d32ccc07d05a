"""Which host takes which weights from whom; computed on the controller."""
