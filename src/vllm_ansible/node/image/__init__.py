"""The engine from a container image: brought, loaded, proven and run on one host."""
