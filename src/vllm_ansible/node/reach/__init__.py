"""Whether hosts reach each other: ports, round trips, clocks, lost datagrams."""
