#!/usr/bin/python
"""Hold a cluster for one run, and read what the last run left on its head."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_lock
short_description: Hold a cluster for one run, and read what the last run left on its head
description:
  - Takes or renews the lock on the cluster's head, so that two runs never work on one cluster.
    The second fails with who holds it, since when and from where.
  - A lock whose run is known to be over is taken over, and so is that of a restart by the watchdog
    whose process has ended, also where its container was restarted since.
  - Also returns the plan that lies on the head, so that any stage can be run alone, and what else
    stages read there. While a run holds the lock, no other one writes it.
author: The vllm-ansible authors
options:
  cluster_dir:
    description: The cluster's directory on its head.
    type: path
    required: true
  state:
    description: Whether this run holds the lock afterwards. V(look) only reads.
    type: str
    choices: [held, free, look]
    default: held
  run:
    description: Identity of this run.
    type: str
    required: true
  holder:
    description:
      - Who runs it and where, for the message that a second run gets (C(name), C(user), C(uid),
        C(host), C(boot_id), C(machine), C(namespace), C(pid), C(start_time), C(acquired)). The
        action plugin fills it in.
    type: dict
    default: {}
  dead_runs:
    description: Runs that this controller started and knows to be over.
    type: list
    elements: str
    default: []
  force:
    description: Take the lock from whoever holds it.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Hold the cluster
  cluster_lock:
    cluster_dir: /opt/vllm-ansible/r1
    run: 20261120T101500Z-r1
    holder: {user: ada, host: bastion}
"""

RETURN = r"""
lock:
  description: The lock as it lies on the head now.
  type: dict
  returned: success
plan:
  description: The plan of the last run, empty when there is none.
  type: dict
  returned: success
kept:
  description:
    - C(evidence) is what the last verification found, with C(accepted), C(fingerprint),
      C(measured_at), C(rows), C(summaries), C(links) and C(baseline); empty where nothing was kept
      or it cannot be read, which proves nothing.
    - C(computed) is the text of what models computed, empty where there is none. It is missing
      where it cannot be read.
    - C(upgrade) says whether an upgrade has not ended.
  type: dict
  returned: success
"""

import getpass
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.cluster import lock


def stored(path: Path) -> dict[str, Any]:
    """Return what was kept in a file, empty when nothing was or it cannot be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def kept(cluster_dir: Path) -> dict[str, Any]:
    """Return what runs have left beside the plan."""
    found = {
        "evidence": stored(cluster_dir / "evidence" / "verify.json"),
        # Path.exists raises where the directory may not be entered.
        "upgrade": os.path.exists(cluster_dir / "upgrade.json"),
    }
    try:
        return {**found, "computed": (cluster_dir / "fingerprints.json").read_text()}
    except FileNotFoundError:
        return {**found, "computed": ""}
    except (OSError, ValueError):
        return found


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster_dir": {"type": "path", "required": True},
            "state": {"choices": ["held", "free", "look"], "default": "held"},
            "run": {"type": "str", "required": True},
            "holder": {"type": "dict", "default": {}},
            "dead_runs": {"type": "list", "elements": "str", "default": []},
            "force": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    wanted = module.params
    directory = Path(wanted["cluster_dir"])
    with lock.alone(directory):
        carry_out(module, directory)


def carry_out(module: AnsibleModule, directory: Path) -> None:
    """Look at the lock, and hold or free it."""
    wanted = module.params
    path = directory / "lock.json"
    now = time.time()
    held = lock.read(path)
    dead_runs = list(wanted["dead_runs"])
    if held and lock.abandoned(path, lock.holder_of(os.getpid(), getpass.getuser())):
        dead_runs.append(held["run"])
    verdict = lock.verdict(held, wanted["run"], dead_runs)
    if held and verdict == "held" and wanted["state"] == "held" and not wanted["force"]:
        refuse(module, held, now)

    try:
        if wanted["state"] == "held" and not module.check_mode:
            hold(module, path, held, verdict, now)
        if wanted["state"] == "free" and verdict == "mine" and not module.check_mode:
            path.unlink()
    except OSError as error:
        module.fail_json(
            msg=f"cannot hold this cluster: {error}",
            expected="a directory that this user may write to",
            found=str(error),
            where=f"{path} on the head",
            fix="connect as the user who set the cluster up, or choose another cluster_dir",
        )

    # Holding and letting go are the run's own affair: they do not count as a change of the host.
    module.exit_json(
        changed=False,
        lock=lock.read(path) or {},
        plan=stored(directory / "plan.json"),
        kept=kept(directory),
    )


def hold(
    module: AnsibleModule, path: Path, held: lock.Lock | None, verdict: str, now: float
) -> None:
    """Renew or take the lock, or refuse when somebody was faster."""
    run, holder = module.params["run"], module.params["holder"]
    mine = {"run": run, "holder": holder, "since": now, "renewed": now}
    if verdict == "mine" and held:
        lock.write(path, {**held, "renewed": now})
    elif held is not None:
        lock.write(path, mine)
    elif not lock.take(path, mine):
        faster = lock.read(path)
        if faster or not os.access(path, os.R_OK):
            refuse(module, faster or {}, now)
        # What lies there is no lock: a head that lost power may keep an empty file.
        lock.write(path, mine)


def refuse(module: AnsibleModule, held: lock.Lock, now: float) -> None:
    """Fail with who holds the cluster and how to go on."""
    minutes = (now - float(held.get("since", now))) / 60
    holder = held.get("holder") or {}
    user, host, pid = (holder.get(name, "?") for name in ("user", "host", "pid"))
    who = f"{user}@{host} (process {pid})"
    name = holder.get("name") or held.get("run")
    module.fail_json(
        msg=f"another run holds this cluster: {name} by {who}, for {minutes:.0f} min",
        lock=held,
        expected="no other run on this cluster",
        found=f"run {name}, started by {who}",
        where=module.params["cluster_dir"] + "/lock.json on the head",
        fix=way_on(holder),
    )


def way_on(holder: Mapping[str, Any]) -> str:
    """Say what to do about a lock that another run, or a restart by the watchdog, holds."""
    if holder.get("restarts"):
        return (
            "wait until playbooks/status.yml shows that the engine answers again; "
            "-e break_lock=true leaves the engine to this run as it is"
        )
    user, host, pid = (holder.get(name, "?") for name in ("user", "host", "pid"))
    return (
        f"wait for that run to end; if process {pid} of {user} does not run on {host} any more "
        f"(ps -p {pid}): -e break_lock=true"
    )


if __name__ == "__main__":
    main()
