"""What a host's own name leads to, and names of its peers on the data plane."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from vllm_ansible.system.judged import Difference, File, Judged, Repair
from vllm_ansible.system.wants import Wants

PATH = "/etc/hosts"
BEGIN, END = "# BEGIN vllm-ansible {cluster}", "# END vllm-ansible {cluster}"
HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*")


def judge(look: Mapping[str, Any], want: Wants) -> Judged:
    """Compare the host's own name and the names of its peers with their data-plane addresses."""
    own = look["hosts_file"]
    text = str(own["hosts_file"])
    rest = without_block(text, want.cluster)
    names = block_names(own["name"], rest, want)
    mended = with_block(without_loopback(rest, own["name"]), names, want.cluster)
    differences = []
    loopback = [one for one in own["addresses"] if ip_address(one.split("%")[0]).is_loopback]
    if loopback or not own["addresses"]:
        differences.append(
            Difference(
                what=f"the host's own name {own['name']}",
                expected=f"an address that others reach, such as {want.address}",
                found=", ".join(own["addresses"]) or "no address",
                # Gloo listens on what its own name leads to.
                fix=f"in {PATH} take {own['name']} off the lines of 127.* and ::1 and add the line "
                f"{want.address} {own['name']}",
            )
        )
    elif mended != text:
        differences.append(
            Difference(
                what="names of the data plane",
                expected=", ".join(f"{name} is {address}" for name, address in names.items())
                or "no block of ours",
                found=f"another block, or none, in {PATH}",
                fix=f"add the lines to {PATH}",
                needed=False,
            )
        )
    notes = []
    if differences and own["rewritten_at_boot"]:
        notes.append(
            f"cloud-init rewrites {PATH} at boot (manage_etc_hosts); set it to false there, or "
            "play prepare after a boot"
        )
    repair = Repair(files=(File(PATH, mended),), script=script(own["name"], names, want.cluster))
    return Judged(tuple(differences), tuple(notes), repair if differences else Repair())


def block_names(name: str, rest: str, want: Wants) -> dict[str, str]:
    """Return the names for our block: those that the rest of the file leads nowhere."""
    known = {
        word
        for line in rest.splitlines()
        for word in line.split("#")[0].split()[1:]
        if not line.startswith(("127.", "::1"))
    }
    wanted = {one: address for one, address in want.peers.items() if HOST_NAME.fullmatch(one)}
    wanted |= {name: want.address}
    if HOST_NAME.fullmatch(want.name):
        wanted.setdefault(want.name, want.address)
    return {one: wanted[one] for one in sorted(wanted) if one not in known and not numeric(one)}


def numeric(name: str) -> bool:
    """Tell whether a name is an address."""
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def without_block(text: str, cluster: str) -> str:
    """Return a hosts file less our block."""
    begin, end = BEGIN.format(cluster=cluster), END.format(cluster=cluster)
    kept, inside = [], False
    for line in text.splitlines():
        inside = inside or line == begin
        if not inside:
            kept.append(line)
        inside = inside and line != end
    return "".join(f"{line}\n" for line in kept)


def without_loopback(text: str, name: str) -> str:
    """Return a hosts file whose loopback lines do not have a name, with its domain or without."""
    kept = []
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words and words[0].startswith(("127.", "::1")):
            others = [word for word in words[1:] if word.split(".")[0] != name.split(".")[0]]
            if len(others) < len(words) - 1:
                if others:
                    kept.append(" ".join([words[0], *others]))
                continue
        kept.append(line)
    return "".join(f"{line}\n" for line in kept)


def with_block(text: str, names: Mapping[str, str], cluster: str) -> str:
    """Return a hosts file with our block at its end; without one where there is nothing to say."""
    if not names:
        return text
    lines = [BEGIN.format(cluster=cluster), *(f"{names[one]} {one}" for one in names)]
    return text + "".join(f"{line}\n" for line in [*lines, END.format(cluster=cluster)])


def script(name: str, names: Mapping[str, str], cluster: str) -> tuple[str, ...]:
    """Return sh that does the same to whatever the file holds by then."""
    begin, end = BEGIN.format(cluster=cluster), END.format(cluster=cluster)
    short = name.split(".")[0]
    program = (
        "$0 == begin { inside = 1 } inside { if ($0 == end) inside = 0; next } "
        "/^(127\\.|::1)/ { line = $1; had = 0; "
        'for (i = 2; i <= NF && $i !~ /^#/; i++) { split($i, part, "."); '
        'if (part[1] == name) had = 1; else line = line " " $i } '
        "if (had) { if (line != $1) print line; next } } { print }"
    )
    return (
        f"awk -v begin='{begin}' -v end='{end}' -v name='{short}' '{program}' "
        f"{PATH} > {PATH}.vllm-ansible",
        *([f"cat >> {PATH}.vllm-ansible <<'END_OF_FILE'"] if names else []),
        *([with_block("", names, cluster) + "END_OF_FILE"] if names else []),
        # Over the same file: in containers it is a mount, which cannot be replaced.
        f"cat {PATH}.vllm-ansible > {PATH}",
        f"rm {PATH}.vllm-ansible",
    )
