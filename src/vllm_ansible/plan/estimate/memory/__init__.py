"""How many bytes each rank of an engine holds, and how many tokens of KV cache are left."""
