"""Models on a host: where they lie, how they come there, what they consist of, how they load."""
