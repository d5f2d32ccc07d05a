"""EFA between machines of AWS: cards, libfabric, NCCL's plugin, and Amazon's installer of both."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_ansible.accelerators.instances import efa_cards
from vllm_ansible.system.judged import Difference, Judged, Repair

VARIABLES = "system_efa_installer and system_efa_installer_sha256"
ARCHIVE = re.compile(r"aws-efa-installer-(\d+\.\d+\.\d+)\.tar\.gz")
SUM = re.compile(r"[0-9a-f]{64}")
PROGRAM = ("./efa_installer.sh", "-y")
# What the archive unpacks to.
DIRECTORY = "aws-efa-installer"


@dataclass(frozen=True)
class Installer:
    """Amazon's installer: where its archive is, and the SHA-256 that it must have."""

    place: str = ""
    sha256: str = ""

    @property
    def version(self) -> str:
        """Return the version that the archive's name tells; empty where it tells none."""
        found = ARCHIVE.fullmatch(self.place.rpartition("/")[2])
        return found[1] if found else ""

    @property
    def wrong(self) -> str:
        """Return why nothing is installed by it, as one clause; empty where it may be used."""
        if not self.place:
            return f"{VARIABLES} are not set"
        if not self.version:
            return (
                f"system_efa_installer is {self.place}, which names no version "
                "(aws-efa-installer-<version>.tar.gz)"
            )
        if not SUM.fullmatch(self.sha256):
            return "system_efa_installer_sha256 is not a SHA-256 in hexadecimal"
        return ""

    def script(self) -> tuple[str, ...]:
        """Return sh that fetches the archive, checks it and runs what is in it."""
        return (
            "efa=$(mktemp -d)",
            f'curl -fsSL -o "$efa/installer.tar.gz" {shlex.quote(self.place)}',
            f'echo {shlex.quote(self.sha256)}"  $efa/installer.tar.gz" | sha256sum -c -',
            'tar -xzf "$efa/installer.tar.gz" -C "$efa"',
            f'(cd "$efa/{DIRECTORY}" && {" ".join(PROGRAM)})',
            'rm -rf "$efa"',
        )


def irrelevant(look: Mapping[str, Any]) -> str:
    """Return why EFA does not matter here; empty where it does."""
    found = look["efa"]
    if found["on_the_bus"] or found["cards"] or found["machine"] in efa_cards():
        return ""
    return "no EFA device"


def judge(look: Mapping[str, Any], installer: Installer) -> Judged:
    """Compare cards and software with what NCCL needs to run over EFA and over nothing else."""
    found = look["efa"]
    count = _count(found)
    missing = _software(found)
    notes = []
    if missing and installer.wrong:
        notes.append(f"nothing is installed: {installer.wrong}")
    if not missing and installer.version and found["installer"] not in ("", installer.version):
        notes.append(
            f"Amazon's installer {found['installer']} has been here, and {installer.version} is "
            "given: what works is left as it is"
        )
    repair = Repair()
    if missing and not installer.wrong:
        repair = Repair(commands=(PROGRAM,), script=installer.script())
    fix = f"run Amazon's installer {installer.version}"
    if installer.wrong:
        fix = (
            f"run Amazon's EFA installer, or set {VARIABLES}, with which system_efa: manage does so"
        )
    differences = [
        Difference(what=what, expected=expected, found=told, fix=fix)
        for what, expected, told in missing
    ]
    return Judged((*count, *differences), tuple(notes), repair)


def _count(found: Mapping[str, Any]) -> list[Difference]:
    """Return the difference in cards of the machine; those without a driver are software's."""
    wanted = efa_cards().get(found["machine"], 0)
    there = max(found["cards"], found["on_the_bus"])
    if there >= wanted:
        return []
    return [
        Difference(
            what="the number of EFA cards",
            expected=f"{wanted} on {found['machine']}",
            found=str(there),
            fix="launch the instance with an EFA interface on each of its network cards: they "
            "cannot be added while it runs",
            on_host=False,
        )
    ]


def _software(found: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return what, expected and found of each part that is missing."""
    missing = []
    if found["cards"] < found["on_the_bus"]:
        missing.append(
            (
                "the driver of EFA",
                f"efa, on {found['on_the_bus']} cards",
                f"on {found['cards']} of them",
            )
        )
    if not found["libfabric"]:
        missing.append(("libfabric with EFA", "libfabric.so.1 below /opt/amazon/efa", "none"))
    if not found["plugin"]:
        missing.append(
            ("NCCL's plugin for EFA", "libnccl-net-ofi.so below /opt/amazon/ofi-nccl", "none")
        )
    if found["libfabric"] and found["cards"] and not found["domains"]:
        told = "fi_info was not found" if found["domains"] is None else "it lists none"
        missing.append(("what `fi_info -p efa` lists", "a domain for each card", told))
    return missing
