#!/usr/bin/python
"""Do to driver packages what Ansible's own package modules cannot."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_packages
short_description: Repair, reinstall, lock driver packages and choose their stream
description:
  - Does what C(apt) and C(dnf) modules have no option for. Every option that is set is carried
    out, in their order here; which are needed is decided from a look, see M(nvidia_driver_plan).
author: The vllm-ansible authors
options:
  manager:
    description: The package manager of the host.
    type: str
    choices: [apt, dnf]
    required: true
  repair:
    description: Finish or undo installations that were interrupted.
    type: bool
    default: false
  stream:
    description: The module stream to follow, such as V(nvidia-driver:580-open); C(dnf) only.
    type: str
    default: ""
  reinstall:
    description: Packages whose files are put back.
    type: list
    elements: str
    default: []
  lock:
    description: Packages that upgrades leave as they are.
    type: list
    elements: str
    default: []
"""

EXAMPLES = r"""
- name: Repair packages that were left half installed
  nvidia_driver_packages:
    manager: apt
    repair: true
"""

RETURN = r"""
commands:
  description: The commands that were run, or would be.
  type: list
  elements: list
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule

QUIET = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}


def steps(wanted: dict[str, object]) -> list[tuple[list[str], bool]]:
    """Return each command, and whether what it cannot finish is left to the next one."""
    reinstall, lock = list(wanted["reinstall"] or []), list(wanted["lock"] or [])  # type: ignore[call-overload]  # lists by the argument spec
    found: list[tuple[list[str], bool]] = []
    if wanted["manager"] == "apt":
        if wanted["repair"]:
            # What lacks a package that it needs is configured by apt, once it has fetched that.
            found.append((["dpkg", "--configure", "--pending"], True))
            found.append((["apt-get", "install", "--fix-broken", "--yes"], False))
        if reinstall:
            command = ["apt-get", "install", "--yes", "--reinstall", "--allow-change-held-packages"]
            found.append(([*command, *reinstall], False))
        if lock:
            found.append((["apt-mark", "hold", *lock], False))
        return found
    if wanted["repair"]:
        found.append((["dnf", "--assumeyes", "remove", "--duplicates"], False))
    if wanted["stream"]:
        found.append((["dnf", "--assumeyes", "module", "reset", "nvidia-driver"], False))
        found.append((["dnf", "--assumeyes", "module", "enable", str(wanted["stream"])], False))
    if reinstall:
        found.append((["dnf", "--assumeyes", "reinstall", *reinstall], False))
    if lock:
        plugin = ["dnf", "--assumeyes", "install", "python3-dnf-plugin-versionlock"]
        found += [(plugin, False), (["dnf", "versionlock", "add", *lock], False)]
    return found


def main() -> None:
    """Decide, act, report."""
    module = AnsibleModule(
        argument_spec={
            "manager": {"type": "str", "choices": ["apt", "dnf"], "required": True},
            "repair": {"type": "bool", "default": False},
            "stream": {"type": "str", "default": ""},
            "reinstall": {"type": "list", "elements": "str", "default": []},
            "lock": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    commands = []
    for command, may_fail in steps(module.params):
        argv = [module.get_bin_path(command[0], required=True), *command[1:]]
        commands.append(argv)
        if module.check_mode:
            continue
        status, output, error = module.run_command(argv, environ_update=QUIET)
        if status != 0 and not may_fail:
            said = (error.strip() or output.strip() or "nothing").splitlines()
            module.fail_json(
                msg=f"`{' '.join(command)}` ended with {status}: {' / '.join(said[-3:])}",
                expected="packages that install",
                found=" / ".join(said[-3:]),
                command=argv,
                fix="run it on the host, fix what it reports, and run again",
            )
    module.exit_json(changed=bool(commands), commands=commands)


if __name__ == "__main__":
    main()
