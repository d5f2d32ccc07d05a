"""Environments of engines on a host: built, given, packed, shared, and removed."""
