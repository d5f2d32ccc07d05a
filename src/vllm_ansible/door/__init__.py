"""The door: one HTTPS address before every engine of a cluster, with a key for each client."""
