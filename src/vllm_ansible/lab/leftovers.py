"""Take away what labs left on this machine whose hosts are gone, such as those that were killed."""

import json
import re
import shutil
import time
from collections.abc import Collection, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from .commands import podman, run
from .network import listed_networks

LABEL = "vllm-ansible.lab"
TABLE = re.compile(r"vllm_lab_([0-9a-f]{8})")
DEVICE = re.compile(r"vl([0-9a-f]{6})[0-9a-f]+[ut]")
# Another lab that is being made has a network and directories before it has hosts.
YOUNG_SECONDS = 3600.0


def dead_tables(listed: dict[str, Any], living: Collection[str]) -> list[str]:
    """Return the tables of labs without a running host, from what nft lists.

    Their rules name cables, whose names the kernel gives to the next lab's.
    """
    tables = [one["table"] for one in listed["nftables"] if "table" in one]
    return [
        str(table["name"])
        for table in tables
        if table["family"] == "bridge"
        and (found := TABLE.fullmatch(table["name"]))
        and found[1] not in living
    ]


def dead_devices(names: Iterable[str], living: Collection[str]) -> list[str]:
    """Return the helper devices of labs without a running host."""
    short = {token[:6] for token in living}
    return [name for name in names if (found := DEVICE.fullmatch(name)) and found[1] not in short]


def dead_networks(
    listed: Iterable[dict[str, Any]], known: Collection[str], old: float
) -> list[str]:
    """Return the networks of labs without any host, made before a time."""
    return [
        str(one["name"])
        for one in listed
        if (token := (one.get("labels") or {}).get(LABEL))
        and token not in known
        and made_at(str(one["created"])) < old
    ]


def made_at(text: str) -> float:
    """Return the time that podman writes with nanoseconds and a zone."""
    return datetime.fromisoformat(re.sub(r"\.\d+", "", text).replace("Z", "+00:00")).timestamp()


def remove_leftovers(trees: Path) -> None:
    """Remove tables, devices, networks and trees of labs that have no host any more, by token."""
    # Before it is asked who lives: a lab that starts a host now may have them in a moment.
    tables = json.loads(run(["nft", "-j", "list", "tables"]).stdout)
    links = json.loads(run(["ip", "-j", "link"]).stdout)
    living = tokens("ps")
    for table in dead_tables(tables, living):
        run(["nft", "delete", "table", "bridge", table], check=False)
    for device in dead_devices([str(one["ifname"]) for one in links], living):
        run(["ip", "link", "del", device], check=False)
    known, old = tokens("ps", "--all"), time.time() - YOUNG_SECONDS
    for network in dead_networks(listed_networks(f"--filter=label={LABEL}"), known, old):
        run(["podman", "network", "rm", network], check=False)
    for tree in trees.iterdir() if trees.is_dir() else ():
        ours = re.fullmatch(r"[0-9a-f]{8}", tree.name)
        if ours and tree.name not in known and tree.stat().st_mtime < old:
            shutil.rmtree(tree, ignore_errors=True)


def tokens(*command: str) -> set[str]:
    """Return the tokens of labs from the hosts that podman lists."""
    text = podman(
        *command, f"--filter=label={LABEL}", "--format", f'{{{{index .Labels "{LABEL}"}}}}'
    )
    return set(text.split())
