"""Cards and software of EFA, as trees of files tell them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.system import efa as system_efa
from vllm_ansible.node.system import efa_cards as efa
from vllm_ansible.node.system.tool import Tools

LISTED = "provider: efa\n    fabric: efa-direct\n    domain: {0}-rdm\n    version: 2.7\n"
SOFTWARE = ("opt/amazon/efa/lib/libfabric.so.1", "opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so")


def put(root: Path, path: str, text: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def card(root: Path, number: int, driver: bool = True, vendor: str = "0x1d0f") -> None:
    place = root / f"sys/bus/pci/devices/0000:{number:02x}:00.0"
    put(place, "vendor", f"{vendor}\n")
    put(place, "device", "0xefa3\n")
    if driver:
        device = root / f"sys/class/infiniband/rdmap{number}s0"
        device.mkdir(parents=True)
        (device / "device").symlink_to(place)


def tree(root: Path, cards: int, *files: str) -> Path:
    put(root, efa.PRODUCT, "p5en.48xlarge\n")
    for number in range(cards):
        card(root, number)
    for path in files:
        put(root, path)
    return root


def tools(**said: str | None) -> Tools:
    def run(argv: list[str]) -> tuple[int, str, str]:
        assert argv[1:] == ["-p", "efa"]
        text = said[Path(argv[0]).name]
        return (61, "", "fi_getinfo: -61 (No data available)") if text is None else (0, text, "")

    return Tools(find=lambda name: f"/bin/{name}" if name in said else None, run=run)


def test_a_host_without_efa_has_none(tmp_path: Path) -> None:
    card(tmp_path, 1, vendor="0x15b3")
    found = {"machine": "", "cards": 0, "on_the_bus": 0}
    assert efa.look(tmp_path) == {**found, "installer": "", "libfabric": "", "plugin": ""}


def test_cards_are_counted_with_and_without_a_driver(tmp_path: Path) -> None:
    tree(tmp_path, 2)
    card(tmp_path, 7, driver=False)
    found = efa.look(tmp_path)
    assert (found["cards"], found["on_the_bus"], found["machine"]) == (2, 3, "p5en.48xlarge")


@pytest.mark.parametrize(
    ("libfabric", "plugin", "directory"),
    [
        (SOFTWARE[0], SOFTWARE[1], "/opt/amazon/efa/lib"),
        (
            "opt/amazon/efa/lib64/libfabric.so.1",
            "opt/amazon/ofi-nccl/lib64/libnccl-net-ofi.so",
            "/opt/amazon/efa/lib64",
        ),
        (
            SOFTWARE[0],
            "opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so",
            "/opt/amazon/efa/lib",
        ),
        (SOFTWARE[0], "opt/aws-ofi-nccl/lib/libnccl-net.so", "/opt/amazon/efa/lib"),
    ],
)
def test_libraries_are_found_where_each_age_of_the_installer_puts_them(
    tmp_path: Path, libfabric: str, plugin: str, directory: str
) -> None:
    found = efa.look(tree(tmp_path, 1, libfabric, plugin))
    assert (found["libfabric"], found["plugin"]) == (directory, f"/{plugin}")


def test_the_plugin_that_can_be_named_comes_first(tmp_path: Path) -> None:
    tree(tmp_path, 1, SOFTWARE[1], "opt/amazon/ofi-nccl/lib/libnccl-net.so")
    assert efa.look(tmp_path)["plugin"] == "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so"


def test_the_installer_leaves_its_version(tmp_path: Path) -> None:
    put(
        tmp_path,
        efa.INSTALLED,
        "# EFA installer version: 1.51.0\n# Debug packages: no\nefa-3.3.1\n",
    )
    assert efa.look(tmp_path)["installer"] == "1.51.0"


def test_domains_are_those_that_libfabric_lists(tmp_path: Path) -> None:
    tree(tmp_path, 2, *SOFTWARE)
    text = "".join(LISTED.format(f"rdmap{one}s0") for one in (1, 0, 1))
    found = system_efa.look(tools(fi_info=text), {}, tmp_path)
    assert found["domains"] == ["rdmap0s0-rdm", "rdmap1s0-rdm"]


@pytest.mark.parametrize(("said", "domains"), [({"fi_info": None}, []), ({}, None)])
def test_no_domain_is_told_from_no_program(
    tmp_path: Path, said: Mapping[str, Any], domains: Any
) -> None:
    assert system_efa.look(tools(**said), {}, tree(tmp_path, 1))["domains"] == domains


def test_the_installers_own_program_is_asked(tmp_path: Path) -> None:
    tree(tmp_path, 1, system_efa.PROGRAM)
    asked: list[list[str]] = []

    def run(argv: list[str]) -> tuple[int, str, str]:
        asked.append(argv)
        return 0, LISTED.format("a"), ""

    found = system_efa.look(Tools(find=lambda name: None, run=run), {}, tmp_path)
    assert found["domains"] == ["a-rdm"]
    assert asked == [[str(tmp_path / system_efa.PROGRAM), "-p", "efa"]]


def test_late_cards_are_waited_for(tmp_path: Path) -> None:
    tree(tmp_path, 1)
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        card(tmp_path, 10 + len(waits))

    found = system_efa.look(tools(), {"p5en.48xlarge": 3}, tmp_path, sleep)
    assert (found["cards"], waits) == (3, [5.0, 5.0])


def test_cards_that_never_come_are_not_waited_for_without_end(tmp_path: Path) -> None:
    waits: list[float] = []
    wanted = {"p5en.48xlarge": 16}
    found = system_efa.look(tools(), wanted, tree(tmp_path, 15), waits.append)
    assert (found["cards"], len(waits)) == (15, 3)


def test_a_machine_of_another_type_waits_for_nothing(tmp_path: Path) -> None:
    def never(seconds: float) -> None:
        raise AssertionError(seconds)

    system_efa.look(tools(), {"p5.48xlarge": 32}, tree(tmp_path, 1), never)
