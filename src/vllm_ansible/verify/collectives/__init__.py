"""Collective bandwidth: what tests print, what machines should give, and whether they do."""
