"""A module for each kind of accelerator; `platform.py` says what is in one."""
