"""Run ansible-playbook by a server where this environment is the one that the server has read.

python alike.py DIRECTORY PROGRAM ...: DIRECTORY has the server's socket and its settings.json, once
it serves. Anywhere else the program itself is started, and leaves in asked.json what it would have
read.
"""

import json
import os
import sys

# What Ansible does not read when it is imported.
PASSED_ON = ("MOLECULE_", "PATH", "PYTEST_", "PWD", "OLDPWD", "VLLM_ANSIBLE_")


def main() -> None:
    """Compare and run."""
    place, program, *words = sys.argv[1:]
    settings = {name: value for name, value in os.environ.items() if not name.startswith(PASSED_ON)}
    try:
        with open(f"{place}/settings.json") as file:
            served = json.load(file)
    except OSError:
        served = None
    if served == settings:
        client = os.path.join(os.path.dirname(os.path.abspath(__file__)), "client.py")
        started = [sys.executable, "-IS", client, f"{place}/socket", program, *words]
    else:
        with open(f"{place}/asked.json", "w") as file:
            json.dump(settings, file)
        started = [program, *words]
    os.execv(started[0], started)  # noqa: S606


main()
