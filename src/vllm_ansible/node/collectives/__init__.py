"""Collective operations between ranks: measured, and what is slow found."""
