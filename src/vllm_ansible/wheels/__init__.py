"""Distributions that are built from source: which, by whom, and where the wheels are kept."""
