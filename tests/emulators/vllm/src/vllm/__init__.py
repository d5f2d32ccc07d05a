"""Stands in for vLLM: its command line, its log, its ranks over a real Ray, and its HTTP.

It computes nothing. It refuses what the real one refuses: an argument that it does not know, a
directory without a model, a context longer than the model's, a Ray with too few devices, a request
without the key or for another model.
"""

__version__ = "0.32.0"
