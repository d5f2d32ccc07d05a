"""The browser of the tests is not disturbed by hosts that other tests create and remove."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, Browser


def netlink_sockets(group: int) -> list[str]:
    """Return the netlink sockets that the processes of a group hold."""
    inodes = {line.split()[-1] for line in Path("/proc/net/netlink").read_text().splitlines()[1:]}
    held = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(process.name)) != group:
                continue
            links = [os.readlink(one) for one in (process / "fd").iterdir()]
        except OSError:
            continue
        held += [link for link in links if link[len("socket:[") : -1] in inodes]
    return held


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_nobody_tells_it_of_interfaces_that_come_and_go(tmp_path: Path) -> None:
    with Browser(tmp_path) as browser:
        assert netlink_sockets(os.getpid()) == netlink_sockets(browser.group) == []
        assert browser.evaluate("navigator.onLine")
