"""Weights of one host: what it has, what it takes from its peers, and what it passes on."""
