"""Callback plugins that only a run from Python loads."""
