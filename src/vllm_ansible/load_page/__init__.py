"""The load-test page."""
