"""Accelerators of a host: which there are, what they say of themselves, what they measure."""
