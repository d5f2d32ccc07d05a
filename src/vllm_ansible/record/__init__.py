"""What a run leaves behind: its directory, its events and its report."""
