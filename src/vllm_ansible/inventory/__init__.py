"""What an inventory says, checked and resolved before and after its hosts were looked at."""
