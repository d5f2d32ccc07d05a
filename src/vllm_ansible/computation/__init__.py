"""Whether engines that have the same weights compute the same numbers."""
