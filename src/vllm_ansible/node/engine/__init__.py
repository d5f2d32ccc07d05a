"""Engines that run: their arguments, their servers and routers, their log, what they compute."""
