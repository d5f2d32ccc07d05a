"""What a host's driver lacks, and how that is mended: pure decisions over one look."""
