"""The stage verify: what its measurements mean, when they are due, and how they are kept."""
