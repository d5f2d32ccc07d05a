"""Judge what hosts measured of each other: ports, loss, clocks, round trips; pure functions."""
