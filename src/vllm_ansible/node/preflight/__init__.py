"""What one look at a host finds of all that has ever kept an engine over several hosts down."""
