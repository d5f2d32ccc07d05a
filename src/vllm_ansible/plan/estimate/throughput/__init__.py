"""How long a step takes and how many tokens come out: decode, prefill, collectives, a band."""
