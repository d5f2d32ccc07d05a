"""The watchdog of a host: looks at engines that serve, and says which rank of them does not."""
