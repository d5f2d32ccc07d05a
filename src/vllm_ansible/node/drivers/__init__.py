"""Drivers of a host: what is decided about them is seen in one look, and how one is installed."""
