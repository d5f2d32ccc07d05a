"""What EFA asks of a host, what mends it, and that nothing unpinned is ever installed."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.system import told
from vllm_ansible.system.efa import Installer
from vllm_ansible.system.judge import to_manage
from vllm_ansible.system.wants import Wants

Judged = Callable[..., Any]
ROOT = Path(__file__).parents[3]
URL = "https://mirror.example/aws-efa-installer-1.51.0.tar.gz"
SUM = "0" * 64
WHOLE = {
    **{"machine": "p5.48xlarge", "cards": 32, "on_the_bus": 32, "installer": "1.51.0"},
    **{"libfabric": "/opt/amazon/efa/lib", "domains": ["a"]},
    "plugin": "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so",
}
BARE = {**WHOLE, "cards": 0, "installer": "", "libfabric": "", "plugin": "", "domains": None}


def of(judged: Judged, look: dict[str, Any], *host: Wants, **found: Any) -> dict[str, Any]:
    look["efa"] = {**WHOLE, **found}
    result: dict[str, Any] = judged(look, *host)["efa"]
    return result


def test_a_host_with_all_of_it_differs_in_nothing(judged: Judged, look: dict[str, Any]) -> None:
    found = of(judged, look)
    assert (found["why"], found["differences"], found["notes"]) == ("", (), ())


def test_elsewhere_nobody_asks_for_it(judged: Judged, look: dict[str, Any], want: Wants) -> None:
    assert judged(look)["efa"]["why"] == "no EFA device"
    assert of(judged, look, replace(want, peers={}))["why"] == "one host takes part"
    other = of(judged, look, replace(want, accelerator="enflame"))
    assert other["why"] == "no accelerators that run over EFA"


def test_a_type_that_is_sold_with_cards_is_asked_for_them(
    judged: Judged, look: dict[str, Any]
) -> None:
    (one,) = of(judged, look, cards=31, on_the_bus=31)["differences"]
    assert (one["what"], one["expected"], one["found"]) == (
        "the number of EFA cards",
        "32 on p5.48xlarge",
        "31",
    )
    assert one["needed"]
    assert "EFA interface on each" in one["fix"]
    none = of(judged, look, cards=0, on_the_bus=0, domains=None)
    assert [one["found"] for one in none["differences"]] == ["0"]


def test_a_fix_promises_only_what_this_play_can_do(judged: Judged, look: dict[str, Any]) -> None:
    look["efa"] = {**WHOLE, "cards": 1, "on_the_bus": 1, "plugin": ""}
    found = {"efa": judged(look, efa="check")["efa"]}
    cards, plugin = told.measurements(found, "one", True, "", False)
    assert cards["fix"].startswith("launch the instance")
    assert plugin["fix"].startswith("as root on one: run Amazon's EFA installer")
    assert not [one for one in (cards, plugin) if "let this play do it" in one["fix"]]


@pytest.mark.parametrize(
    ("lacks", "what", "said"),
    [
        ({"cards": 30}, "the driver of EFA", "on 30 of them"),
        ({"libfabric": ""}, "libfabric with EFA", "none"),
        ({"plugin": ""}, "NCCL's plugin for EFA", "none"),
        ({"domains": []}, "what `fi_info -p efa` lists", "it lists none"),
        ({"domains": None}, "what `fi_info -p efa` lists", "fi_info was not found"),
    ],
)
def test_each_part_that_is_missing_stops_a_run(
    judged: Judged, look: dict[str, Any], lacks: dict[str, Any], what: str, said: str
) -> None:
    (one,) = of(judged, look, **lacks)["differences"]
    assert (one["what"], one["found"], one["needed"]) == (what, said, True)


def test_nothing_is_installed_that_is_not_pinned(
    judged: Judged, look: dict[str, Any], want: Wants
) -> None:
    for installer, why in (
        (Installer(), "are not set"),
        (Installer(URL.replace("1.51.0", "latest"), SUM), "names no version"),
        (Installer(URL, "1.51.0"), "not a SHA-256"),
        (Installer(URL), "not a SHA-256"),
    ):
        found = of(judged, look, replace(want, efa_installer=installer), **BARE)
        assert why in found["notes"][0]
        assert to_manage({"efa": found}, root=True) == []
        assert "system_efa_installer" in found["differences"][0]["fix"]


def test_what_is_pinned_is_installed(judged: Judged, look: dict[str, Any], want: Wants) -> None:
    found = of(judged, look, replace(want, efa_installer=Installer(URL, SUM)), **BARE)
    assert to_manage({"efa": found}, root=True) == ["efa"]
    assert found["repair"]["commands"] == (("./efa_installer.sh", "-y"),)
    assert "1.51.0" in found["differences"][0]["fix"]


def test_what_works_is_not_replaced_by_another_version(
    judged: Judged, look: dict[str, Any], want: Wants
) -> None:
    asked = replace(want, efa_installer=Installer(URL, SUM))
    found = of(judged, look, asked, installer="1.49.0")
    assert not to_manage({"efa": found}, root=True)
    assert "1.49.0 has been here, and 1.51.0 is given" in found["notes"][0]


def archive(directory: Path, script: str) -> tuple[Path, str]:
    """Return an archive as Amazon's, whose program is given, and its SHA-256."""
    path = directory / "aws-efa-installer-1.51.0.tar.gz"
    with tarfile.open(path, "w:gz") as made:
        entry = tarfile.TarInfo("aws-efa-installer/efa_installer.sh")
        entry.size, entry.mode = len(script.encode()), 0o755
        made.addfile(entry, io.BytesIO(script.encode()))
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_administrators_script_installs_it_too(tmp_path: Path) -> None:
    made, digest = archive(tmp_path, f'#!/bin/sh\necho "$@" > {tmp_path}/ran\n')
    for number, checksum in ((1, SUM), (0, digest)):
        text = "\n".join(("set -eu", *Installer(made.as_uri(), checksum).script()))
        done = subprocess.run(["sh"], input=text, capture_output=True, text=True, check=False)
        assert bool(done.returncode) == bool(number), done.stderr
        assert (tmp_path / "ran").exists() != bool(number)
    assert (tmp_path / "ran").read_text() == "-y\n"


def install(play: Any, made: Path, digest: str, flags: tuple[str, ...] = ()) -> Any:
    tasks = str(ROOT / "roles/system/tasks/efa.yml")
    facts = {
        **{"system_efa_installer": made.as_uri(), "system_efa_installer_sha256": digest.upper()},
        "sources_environment": {},
        "__system_repair": {"commands": [["./efa_installer.sh", "-y"]]},
    }
    return play([{"name": "efa", "include_tasks": tasks}], {"n1": facts}, flags=flags)


def test_the_role_runs_what_has_the_checksum(play: Any, tmp_path: Path) -> None:
    made, digest = archive(
        tmp_path, f'#!/bin/sh\npwd > {tmp_path}/where; echo "$@" > {tmp_path}/ran\n'
    )
    found = install(play, made, digest)
    assert (tmp_path / "ran").read_text() == "-y\n"
    assert found["Keep that the fabric is new"]["ansible_facts"] == {"system_efa_installed": True}
    assert not Path((tmp_path / "where").read_text().strip()).exists(), "the installer is removed"


def test_the_role_runs_nothing_else(play: Any, tmp_path: Path) -> None:
    made, digest = archive(tmp_path, f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    found = install(play, made, SUM)
    assert found["Fetch the installer"]["failed"]
    assert "did not match" in found["Fetch the installer"]["msg"]
    install(play, made, digest, flags=("--check",))
    assert not (tmp_path / "ran").exists()
