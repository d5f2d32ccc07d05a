"""What makes hosts one cluster: its lock, its key, who is let in by it, a directory they share."""
