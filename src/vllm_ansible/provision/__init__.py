"""Machines that are rented: what exists, what is wanted, and the steps between the two."""
