"""What a host tells Prometheus beside what its node exporter knows."""
