"""Close what vLLM leaves open: paths without a key, and a port on every address of a host."""
