#!/usr/bin/python
"""Have a rented machine power itself off some time after the limits of its cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_end
short_description: Have a rented machine power itself off some time after the limits of its cluster
description:
  - Writes a timer and a service of systemd, and starts the timer. It outlives a reboot, and does
    nothing on another machine that was started from an image of this one.
  - Only for machines that a shutdown from within ends, as at AWS; elsewhere they would be paid for
    on.
  - Without a time both units are removed.
author: The vllm-ansible authors
options:
  cluster:
    description: Name of the cluster, which names the units.
    type: str
    required: true
  at:
    description: When, in seconds since the epoch; never if it is left out.
    type: int
  look:
    description:
      - Change nothing, for the play is not root, and warn of a timer that ends the machine before
        O(at), or at all where there is no limit.
    type: bool
    default: false
  units:
    description: Directory of systemd's units.
    type: path
    default: /etc/systemd/system
"""

EXAMPLES = r"""
- name: Have the machine end itself where the controller does not
  machine_end:
    cluster: demo
    at: 1795632080
  become: true
"""

RETURN = r"""
early:
  description: The warning of a timer that ends the machine too early, empty without one.
  type: str
  returned: with O(look)
timer:
  description: Name of the timer.
  type: str
  returned: success
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.vllm_ansible.node.system import machine_end

LOADED = {"ActiveState=active", "NeedDaemonReload=no"}


def content(path: str) -> str | None:
    """Return what a file holds; nothing where it is not there."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


def write(path: str, text: str) -> None:
    """Put a file in place as a whole."""
    fresh = f"{path}.new"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(fresh, 0o644)
    os.replace(fresh, path)


def do(module: AnsibleModule, *argv: str) -> None:
    """Run a command, or fail with what it says."""
    status, output, errors = module.run_command(list(argv))
    if status != 0:
        module.fail_json(
            msg=f"{' '.join(argv)} failed: {errors.strip() or output.strip()}",
            expected="a timer that ends this machine after max_hours or max_cost",
            found=f"exit status {status}",
            where=module.params["units"],
            fix="see `journalctl -b -u 'vllm-ansible-end-*'` on this host; without max_hours and "
            "max_cost there is no timer",
        )


def moment(at: int) -> str:
    """Return a time as a person reads it."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def main() -> None:
    """Look, decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "cluster": {"type": "str", "required": True},
            "at": {"type": "int"},
            "look": {"type": "bool", "default": False},
            "units": {"type": "path", "default": "/etc/systemd/system"},
        },
        supports_check_mode=True,
    )
    cluster, at = module.params["cluster"], module.params["at"]
    base = os.path.join(module.params["units"], machine_end.name(cluster))
    timer = f"{machine_end.name(cluster)}.timer"
    if module.params["look"]:
        early, ends = "", machine_end.ends(content(f"{base}.timer"))
        if ends is not None and (at is None or ends < at):
            wanted_end = "there is no limit" if at is None else f"the limit is at {moment(at)}"
            early = (
                f"this machine powers itself off at {moment(ends)}, and {wanted_end}: {timer} is "
                "from a run with root, and privileges: none cannot change it. On the machine run "
                f"`sudo systemctl disable --now {timer}`"
            )
            module.warn(early)
        module.exit_json(changed=False, timer=timer, early=early)
    wanted: dict[str, str | None] = {f"{base}.timer": None, f"{base}.service": None}
    if at is not None:
        identity = (content(machine_end.IDENTITY) or "").strip()
        wanted = {
            f"{base}.service": machine_end.service(cluster, identity),
            f"{base}.timer": machine_end.timer(cluster, at),
        }
    differ = {path: text for path, text in wanted.items() if content(path) != text}
    systemctl = module.get_bin_path("systemctl", required=at is not None)
    if systemctl and at is not None and not differ:
        # Stopped by hand, or by a run that was killed before it had systemd read the files.
        show = [systemctl, "show", "--property=ActiveState", "--property=NeedDaemonReload", timer]
        _, output, _ = module.run_command(show)
        differ = {} if set(output.split()) == LOADED else wanted
    if differ and not module.check_mode:
        if at is None and systemctl:
            module.run_command([systemctl, "disable", "--now", timer])
        for path, text in differ.items():
            if text is None:
                os.unlink(path)
            else:
                write(path, text)
        if systemctl:
            do(module, systemctl, "daemon-reload")
        if at is not None:
            do(module, systemctl, "enable", timer)
            do(module, systemctl, "restart", timer)
    module.exit_json(changed=bool(differ), timer=timer)


if __name__ == "__main__":
    main()
