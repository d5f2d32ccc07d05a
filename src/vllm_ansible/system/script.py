"""One script for the administrator of hosts on which a run has no root."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_ansible.system.judge import Judgement

HEAD = """\
#!/bin/sh
# What the hosts below lack for serving. Run it as root on each of them:
#     ssh HOST sudo sh < {path}
# It finds its host by the data-plane address, does nothing elsewhere, and may be run again.
set -eu

if [ "$(id -u)" -ne 0 ]; then
    echo "expected: root; found: user $(id -un); run it with sudo" >&2
    exit 1
fi

known=no
is_host() {{
    {{ ip -o -4 address show 2>/dev/null || hostname -I; }} | grep -qwF "$1" || return 1
    known=yes
}}

install() {{
    if command -v apt-get >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"
    else
        dnf install -y -q "$@"
    fi
}}
"""
TAIL = """
if [ "$known" = no ]; then
    echo "expected: one of {names}; found: $(hostname), which has none of their addresses" >&2
    exit 1
fi
echo "done on $(hostname); run the stage prepare again"
"""


def render(
    judged: Mapping[str, Mapping[str, Judgement]], addresses: Mapping[str, str], path: str
) -> str:
    """Return POSIX sh for all hosts, or nothing where no host has a difference left.

    judged is by host and by concern; addresses are on the data plane.
    """
    bodies: dict[str, list[str]] = {}
    for name, concerns in judged.items():
        body = "".join(section(concern, one) for concern, one in concerns.items())
        if body:
            bodies.setdefault(body, []).append(name)
    if not bodies:
        return ""
    text = HEAD.format(path=shlex.quote(path))
    for body, names in bodies.items():
        tests = " || ".join(f"is_host {shlex.quote(addresses[name])}" for name in names)
        text += f"\n# ---- {', '.join(names)}\nif {tests}; then\n{body}fi\n"
    return text + TAIL.format(names=", ".join(name for names in bodies.values() for name in names))


def section(concern: str, judged: Judgement) -> str:
    """Return the part of one concern: its differences as comments, then what mends them."""
    if not judged["differences"]:
        return ""
    lines = [f"# {concern.replace('_', ' ')}"]
    for one in judged["differences"]:
        told = f"{one['what']}: expected {one['expected']}; found {one['found']}"
        lines.append(f"# - {told}".replace("\n", " "))
    lines += list(judged["notes"] and [f"# note: {note}" for note in judged["notes"]])
    steps = list(judged["repair"]["script"]) or generic(judged["repair"])
    lines += steps or [f"echo {shlex.quote(one['fix'])} >&2" for one in judged["differences"]]
    return "\n".join(lines) + "\n"


def generic(repair: Mapping[str, Any]) -> list[str]:
    """Return sh that does what the role's tasks do."""
    lines = []
    if repair["packages"]:
        lines.append(f"install {shlex.join(repair['packages'])}")
    for file in repair["files"]:
        lines += write(file["path"], file["text"])
    for module in repair["modules"]:
        lines.append(f"modprobe {shlex.quote(module)}")
    for service in repair["services"]:
        lines.append(f"systemctl enable --now {shlex.quote(service)}")
    lines += [shlex.join(command) for command in repair["commands"]]
    return lines


def write(path: str, text: str) -> Sequence[str]:
    """Return sh that writes a whole file."""
    directory = path.rpartition("/")[0]
    return [f"mkdir -p {directory}", f"cat > {path} <<'END_OF_FILE'", f"{text}END_OF_FILE"]
