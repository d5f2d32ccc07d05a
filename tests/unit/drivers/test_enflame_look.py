"""Enflame's driver as trees of hosts show it: sysfs, modules, the mark, and who holds a device."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.accelerators import enflame
from vllm_ansible.node.drivers import enflame_driver

KERNEL = platform.release()
VERSION = "1.7.2.14"
BANNER = f"| EFSMI: {VERSION}          Driver Ver: {VERSION}    |\n"


def write(root: Path, files: dict[str, str]) -> None:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)


def card(number: int) -> dict[str, str]:
    device = f"sys/bus/pci/devices/0000:1{number}:00.0"
    return {f"{device}/vendor": "0x1e36\n", f"{device}/class": "0x120000\n"}


LOADED = {
    "sys/module/enflame/version": f"{VERSION}\n",
    "sys/module/enflame/refcnt": "1\n",
    "sys/module/enflame/holders/enflame_peer_mem": "",
    "sys/module/enflame_peer_mem/version": f"{VERSION}\n",
}


def modinfo(argv: list[str]) -> tuple[int, str]:
    assert argv[:3] == ["modinfo", "-k", KERNEL]
    return (0, f"{VERSION}\n") if argv[-1] == "enflame" else (1, "")


@pytest.fixture(autouse=True)
def efsmi(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*arguments: str) -> str:
        return "DEV ID 0\nDEV ID 1\n" if arguments == ("-q",) else BANNER

    monkeypatch.setattr(enflame, "ask", ask)


def test_a_loaded_driver_is_told_with_what_stands_on_it(tmp_path: Path) -> None:
    write(tmp_path, {**card(0), **card(1), **LOADED, f"lib/modules/{KERNEL}/build/Makefile": ""})
    found = enflame_driver.look(modinfo, str(tmp_path))
    assert found["devices"] == ["0000:10:00.0", "0000:11:00.0"]
    assert (found["loaded"], found["installed"], found["tool"]) == (VERSION, VERSION, VERSION)
    assert (found["holders"], found["references"]) == (["enflame_peer_mem"], 1)
    assert found["peer_memory"] and not found["peer_installed"]
    assert found["headers"] and found["answering"] == 2 and found["begun"] == {}


def test_without_a_loaded_module_the_tool_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enflame, "ask", lambda *_: pytest.fail("it would hang or fail"))
    write(tmp_path, {**card(0), "lib/modules/5.4.0/extra/enflame.ko.zst": ""})
    found = enflame_driver.look(lambda argv: (1, ""), str(tmp_path))
    assert (found["loaded"], found["installed"], found["answering"]) == ("", "", 0)
    assert found["other_kernels"] == ["5.4.0"] and not found["headers"]


@pytest.mark.parametrize(
    ("mark", "begun"),
    [
        (json.dumps({"version": "1", "sha256": "ab"}), {"version": "1", "sha256": "ab"}),
        ('{"versi', {"version": "", "sha256": ""}),
        ("", {"version": "", "sha256": ""}),
    ],
)
def test_what_was_begun_and_not_ended_is_seen(
    tmp_path: Path, mark: str, begun: dict[str, str]
) -> None:
    write(tmp_path, {**card(0), enflame_driver.MARK: mark})
    assert enflame_driver.look(modinfo, str(tmp_path))["begun"] == begun


@pytest.mark.parametrize(
    ("capabilities", "may"),
    [("000001ffffffffff", True), ("00000000a80425fb", False), ("", False)],
    ids=["root", "root of a container", "not told"],
)
def test_who_may_load_modules_is_known(tmp_path: Path, capabilities: str, may: bool) -> None:
    write(tmp_path, {"proc/self/status": f"Name:\tpython3\nCapEff:\t{capabilities}\n"})
    assert enflame_driver.may_load(tmp_path) is may


def test_who_holds_a_device_is_named(tmp_path: Path) -> None:
    held: dict[str, Any] = {"7": "/dev/gcu0", "8": "/dev/gcuctl", "9": "/dev/null"}
    for pid, device in held.items():
        write(tmp_path, {f"proc/{pid}/comm": f"p{pid}\n"})
        (tmp_path / f"proc/{pid}/fd").mkdir()
        os.symlink(device, tmp_path / f"proc/{pid}/fd/3")
    # A socket that its engine closed between the look at its number and the look at it.
    os.mkdir(tmp_path / "proc/7/fd/4")
    # A process that ended meanwhile.
    write(tmp_path, {"proc/10/comm": "gone\n"})
    assert enflame_driver.users(tmp_path) == ["p7 (7)", "p8 (8)"]
    assert enflame_driver.holding(tmp_path) == {7: ("p7", [0]), 8: ("p8", [])}
