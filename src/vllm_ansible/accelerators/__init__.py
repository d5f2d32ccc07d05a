"""What accelerators hold, compute and move, and lines that name machines full of them."""
