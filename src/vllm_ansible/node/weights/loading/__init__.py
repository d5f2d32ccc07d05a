"""How long an engine's weights take to load: where they lie, how fast that is read, what moves."""
