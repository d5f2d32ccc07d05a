"""What is mounted at a path, and whether a mount is as wanted."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from ..system.storage import mounts

Mount = dict[str, str]
# Flags whose absence says something, too.
FLAGS = ("fsc", "soft", "ro")
# What only a new mount changes, and what the kernel shows as it was asked for. The server may
# grant less than others ask: to compare rsize or timeo would be to mount anew for ever.
COMPARED = ("vers", "proto", "sec")


def mounted_at(path: str, mountinfo: str = "/proc/self/mountinfo") -> Optional[Mount]:
    """Return kind, source and options of what is mounted exactly there; None for nothing."""
    found = [one for one in mounts(mountinfo) if one["point"] == path.rstrip("/")]
    # The last one hides those before.
    return found[-1] if found else None


def same_source(one: str, other: str) -> bool:
    """Tell whether two sources are one export; only a slash at the end may differ."""
    return one.rstrip("/") == other.rstrip("/")


def differences(live: str, wanted: str) -> list[str]:
    """Return what a mount would need to be mounted anew for, as it is wanted."""
    shown, asked = words_of(live), words_of(wanted)
    found = []
    for flag in FLAGS:
        if (flag in asked) != (flag in shown):
            found.append(f"{flag} instead of none" if flag in asked else f"no {flag}")
    if "noatime" in asked and "noatime" not in shown:
        found.append("noatime")
    asked["vers"] = asked.get("vers") or asked.get("nfsvers", "")
    for key in COMPARED:
        value, is_now = asked.get(key, ""), shown.get(key, "")
        # vers=4 leaves the minor version to be agreed on.
        if value and is_now and is_now != value and not is_now.startswith(f"{value}."):
            found.append(f"{key}={value} instead of {is_now}")
    return found


def other_cache(bound: list[str], wanted: str) -> list[str]:
    """Return what a mount would need to be mounted anew for, as another cache is to hold it."""
    if not wanted or not bound or wanted in bound:
        return []
    return [f"the cache {wanted} instead of {', '.join(bound)}"]


def words_of(options: str) -> dict[str, str]:
    """Return the options of a mount with their values, empty for flags."""
    return dict(word.partition("=")[::2] for word in options.split(",") if word)


def read(path: str) -> str:
    """Return the content of a file, nothing where there is none."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""
