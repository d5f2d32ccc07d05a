"""A module for each who gives a cluster its hosts; `giver.py` says what is in one."""
