"""What mends a difference, as data, and as the commands a person would type."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, fields

PEER_MEMORY_FILE = "/etc/modules-load.d/nvidia-peermem.conf"


@dataclass(frozen=True)
class Mend:
    """One or several steps, always done in the order of these fields."""

    repository: bool = False
    repair: bool = False
    pin: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    reinstall: tuple[str, ...] = ()
    hold: tuple[str, ...] = ()
    enable: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    reboot: bool = False

    @property
    def now(self) -> bool:
        """Tell whether there is something to do before a reboot."""
        return any(getattr(self, one.name) for one in fields(self) if one.name != "reboot")


def together(mends: Iterable[Mend]) -> Mend:
    """Return all steps of several, each once."""
    found: dict[str, object] = {}
    for one in mends:
        for field in fields(one):
            value, before = getattr(one, field.name), found.get(field.name)
            if isinstance(value, bool):
                found[field.name] = bool(before) or value
            else:
                found[field.name] = tuple(dict.fromkeys((*(before or ()), *value)))  # type: ignore[misc]  # tuples, by the fields' types
    return Mend(**found)  # type: ignore[arg-type]  # of the fields' own types


def commands(mend: Mend, manager: str) -> list[str]:
    """Return the commands of a mend for a shell of root; the repository's stand elsewhere."""
    apt = manager == "apt"
    lines: list[str] = []
    if mend.repair:
        lines += (
            ["dpkg --configure --pending", "apt-get install --fix-broken --yes"]
            if apt
            else ["dnf --assumeyes remove --duplicates"]
        )
    for pin in mend.pin:
        lines += (
            [f"apt-get install --yes {pin}"]
            if apt
            else [
                "dnf --assumeyes module reset nvidia-driver",
                f"dnf --assumeyes module enable {pin}",
            ]
        )
    if mend.install:
        lines.append(_install(mend.install, apt))
    if mend.reinstall:
        names = shlex.join(mend.reinstall)
        lines.append(
            f"apt-get install --yes --reinstall --allow-change-held-packages {names}"
            if apt
            else f"dnf --assumeyes reinstall {names}"
        )
    if mend.hold:
        names = shlex.join(mend.hold)
        lines += (
            [f"apt-mark hold {names}"]
            if apt
            else [
                "dnf --assumeyes install python3-dnf-plugin-versionlock",
                f"dnf versionlock add {names}",
            ]
        )
    lines += [f"systemctl enable {one}" for one in mend.enable]
    for one in mend.modules:
        lines += [f"modprobe {one}", f"echo {one} > {PEER_MEMORY_FILE}"]
    lines += [f"systemctl enable --now {one}" for one in mend.start]
    return lines + (["systemctl reboot"] if mend.reboot else [])


def _install(packages: tuple[str, ...], apt: bool) -> str:
    names = shlex.join(packages)
    if not apt:
        return f"dnf --assumeyes install {names}"
    return f"apt-get install --yes --allow-downgrades --allow-change-held-packages {names}"
