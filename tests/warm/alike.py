"""Run a program of Ansible by a server where this environment is the one that the server has read.

python alike.py DIRECTORY PROGRAM ...: DIRECTORY has the server's socket and its settings.json, once
it serves. Anywhere else the program itself is started, and leaves in asked.json what it would have
read. Its version and its configuration are asked for once.
"""

import json
import os
import sys

# What Ansible does not read when it is imported.
PASSED_ON = ("LINES", "MOLECULE_", "PATH", "PYTEST_", "PWD", "OLDPWD", "VLLM_ANSIBLE_")
# What molecule asks at its start, and before each playbook.
ASKED_ONCE = (["dump"], ["--version"])
DEFAULT = ("ANSIBLE_VERBOSITY", "0")  # testinfra sets it


def main() -> None:
    """Compare and run."""
    place, program, *words = sys.argv[1:]
    if words in ASKED_ONCE:
        tell(f"{place}/{os.path.basename(program)}{words[0]}", [program, *words])
        return
    settings = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(PASSED_ON) and (name, value) != DEFAULT
    }
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


def tell(kept: str, command: list[str]) -> None:
    """Print what the command has said, the first time as it does itself."""
    if not os.path.exists(kept):
        import subprocess

        said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
        with open(f"{kept}.{os.getpid()}", "wb") as file:
            file.write(said)
        os.rename(file.name, kept)
    with open(kept) as text:
        sys.stdout.write(text.read())


main()
