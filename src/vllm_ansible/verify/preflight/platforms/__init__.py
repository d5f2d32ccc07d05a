"""A module for each kind of accelerator that has checks of its own; `own.py` finds them."""
