"""With how many threads a release of HAProxy may run the door's program, and how it balances.

Up to March 2024 HAProxy called Lua in hlua_filter_new() and hlua_filter_delete() without its lock
(https://github.com/haproxy/haproxy/issues/2467). With two threads, requests then share a filter:
some never end, and after some thousand requests HAProxy ends with a segmentation fault.
"""

from __future__ import annotations

import re

# The first release with the lock, of the series that have it in some releases only.
LOCKED = {(2, 6): 17, (2, 8): 8}
# Every release of this series and of later ones has it.
SERIES = (3, 0)
# More wait for each other: one Lua state serves all.
MOST = 4
# Of the mean of requests, in percent; an engine or data rank that has more gets none of others.
MOST_OF_MEAN = 150


def threads(said: str, cores: int) -> int:
    """Return how many threads to run. said: what `haproxy -v` prints."""
    found = re.match(r"HA-?Proxy version (\d+)\.(\d+)\.(\d+)", said)
    if not found:
        return 1
    major, minor, release = (int(one) for one in found.groups())
    series = (major, minor)
    locked = series >= SERIES or release >= LOCKED.get(series, release + 1)
    return max(1, min(cores, MOST)) if locked else 1


def by_conversation(header: str) -> list[str]:
    """Return how a backend of the door or a router chooses by a header, which names a conversation.

    Those of a server with too many requests go to the next one until it has fewer.
    """
    return [
        f"balance hash req.hdr({header})",
        "hash-type consistent sdbm avalanche",
        f"hash-balance-factor {MOST_OF_MEAN}",
    ]
