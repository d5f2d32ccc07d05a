"""What Prometheus watches of a cluster, and from which values on it calls."""
