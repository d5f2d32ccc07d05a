"""Every way to split a model over machines: what is possible, what it costs, which one to run."""
