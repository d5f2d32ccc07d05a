"""Which lock the engine's environment is built from, and what it must hold."""
