"""The present state of what an operating system gives to serving: one file for each concern."""
