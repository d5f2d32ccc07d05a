"""Engines that are changed behind the door, one after the other."""
