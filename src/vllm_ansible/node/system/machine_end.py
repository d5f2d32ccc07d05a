"""Units of systemd that power a rented machine off some time after its cluster's limits.

Where a shutdown from within ends the machine, as at EC2, no one has to be left to end it. They are
written by the module `machine_end` and, for the time before anybody can log in, by user data.
"""

from __future__ import annotations

import calendar
import re
import time
from typing import Optional

UNITS = "/etc/systemd/system"
# Of this machine alone: an image that is made of it would else end whatever it is started on.
IDENTITY = "/sys/class/dmi/id/product_uuid"


def name(cluster: str) -> str:
    """Return what both units are called."""
    return f"vllm-ansible-end-{cluster}"


def timer(cluster: str, at: float) -> str:
    """Return the unit that waits; `at` is in seconds since the epoch."""
    lines = [
        "[Unit]",
        f"Description=End this machine some time after max_hours or max_cost of {cluster}",
        "[Timer]",
        f"OnCalendar={time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(at))}",
        "AccuracySec=1s",
        # Also where that time passes during a reboot.
        "Persistent=true",
        "[Install]",
        "WantedBy=timers.target",
        "",
    ]
    return "\n".join(lines)


def ends(timer: Optional[str]) -> Optional[int]:
    """Return the time that a timer's unit waits for; None without one."""
    found = re.search(r"^OnCalendar=([0-9-]+ [0-9:]+) UTC$", timer or "", re.MULTILINE)
    return calendar.timegm(time.strptime(found[1], "%Y-%m-%d %H:%M:%S")) if found else None


def service(cluster: str, identity: str) -> str:
    """Return the unit that ends the machine; `identity` is what IDENTITY holds, where it exists."""
    same = f"grep -qisx -e '{identity}' {IDENTITY} || ! test -s {IDENTITY}"
    lines = [
        "[Unit]",
        f"Description=Power off, which ends this machine: max_hours or max_cost of {cluster}",
        "[Service]",
        "Type=oneshot",
        f'ExecCondition=/bin/sh -c "{same}"',
        "ExecStart=/bin/systemctl poweroff",
        "",
    ]
    return "\n".join(lines)


def user_data(cluster: str, at: float) -> str:
    """Return the script that a new machine runs at its first start; it holds no secret."""
    unit = f"{UNITS}/{name(cluster)}"
    lines = [
        "#!/bin/sh",
        "umask 022",
        f"id=$(cat {IDENTITY})",
        f"cat > {unit}.service << END",
        f"{service(cluster, '$id')}END",
        f"cat > {unit}.timer << END",
        f"{timer(cluster, at)}END",
        "systemctl daemon-reload",
        f"systemctl enable --now {name(cluster)}.timer",
        "",
    ]
    return "\n".join(lines)
