"""What an engine does for requests."""

SERVE, PREFILL, DECODE = "serve", "prefill", "decode"
# The first is what an engine has that says nothing of it.
ROLES = (SERVE, PREFILL, DECODE)
