"""Long-lived processes and background tasks of a host: who runs them, who they are, their end."""
