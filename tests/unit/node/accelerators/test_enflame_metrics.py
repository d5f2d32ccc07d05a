"""What is published of Enflame devices, and that the process which does so ends in order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.flows.clone import wait_until
from vllm_ansible.node.accelerators import enflame_metrics, prometheus
from vllm_ansible.node.accelerators.enflame_metrics import Watch, samples, text

ROOT = Path(__file__).parents[4]
EFSMI = ROOT / "tests/emulators/enflame/efsmi"


def device(index: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "index": index,
        "name": "S60",
        "serial": f"A{index}",
        "link": {"width": 16, "most_width": 16, "generation": 5, "most_generation": 5},
        "temperature": 40.0,
        "memory": {"total": 42 << 30, "used": 1 << 30, "free": 41 << 30},
        "ecc_errors": {"single": 0, "double": 0},
        "double_bit_ever": 0.0,
        "replace": False,
        "told_healthy": True,
        **more,
    }


def value(told: str, name: str, **labels: str) -> float:
    """Return the one sample with these labels."""
    for line in told.splitlines():
        found = dict(re.findall(r'(\w+)="([^"]*)"', line))
        if re.match(rf"{name}[ {{]", line) and labels.items() <= found.items():
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no {name} {labels} in:\n{told}")


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        ({"ecc_errors": {"single": 3, "double": 1}}, "memory"),
        ({"double_bit_ever": 2.0}, "memory"),
        ({"replace": True}, "memory"),
        ({"told_healthy": False}, "memory"),
        ({"link": {**device()["link"], "width": 8}}, "link"),
        ({"link": {**device()["link"], "width": 0}}, "link"),
    ],
)
def test_a_device_is_unwell_for_a_reason(spoilt: dict[str, Any], reason: str) -> None:
    told = text(samples([device(0), device(1, **spoilt)], Watch(), 100.0))
    assert value(told, "vllm_device_healthy", device="0") == 1
    assert value(told, "vllm_device_healthy", device="1") == 0
    reasons = {
        one: value(told, "vllm_device_unwell", device="1", reason=one)
        for one in ("memory", "link", "temperature")
    }
    assert reasons == {one: float(one == reason) for one in reasons}
    assert value(told, "vllm_devices") == 2


def test_corrected_errors_are_counted_and_no_reason() -> None:
    told = text(samples([device(ecc_errors={"single": 7, "double": 0})], Watch(), 1.0))
    assert value(told, "vllm_device_healthy") == 1
    assert value(told, "vllm_device_ecc_errors_total", kind="single") == 7


def test_a_device_is_hot_once_it_stays_so() -> None:
    watch = Watch()

    def healthy(degrees: float, now: float) -> float:
        told = text(samples([device(temperature=degrees)], watch, now))
        return value(told, "vllm_device_healthy")

    assert [healthy(96, 0), healthy(96, 9), healthy(96, 10)] == [1, 1, 0]
    # It was cool in between, so it begins anew.
    assert [healthy(90, 11), healthy(96, 12), healthy(96, 21)] == [1, 1, 1]


def test_what_is_not_told_is_not_published() -> None:
    silent = device(temperature=None, ecc_errors=None, link=dict.fromkeys(device()["link"]))
    told = text(samples([silent], Watch(), 1.0))
    assert value(told, "vllm_device_healthy") == 1
    for name in ("vllm_device_temperature", "vllm_device_link_lanes", "vllm_device_ecc"):
        assert name not in told


def test_names_cannot_break_the_format() -> None:
    told = text(samples([device(name='S"60\\\n')], Watch(), 1.0))
    assert 'name="S\\"60\\\\\\n"' in told


@pytest.fixture
def published(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run the program as a host does, with an efsmi that lists two devices."""
    driver = tmp_path / "sys/module/enflame"
    driver.mkdir(parents=True)
    (driver / "version").write_text("1.7.2.14")
    state = tmp_path / "state.json"
    state.write_text('{"devices": [{}, {"width": 4}]}')
    places = tmp_path / "bin"
    places.mkdir()
    (places / "efsmi").symlink_to(EFSMI)
    # Its places are the vendor's, and nobody else's: what runs here looks at one more.
    program = (
        "import sys; from vllm_ansible.node.accelerators import enflame, enflame_metrics;"
        f"enflame.PLACES = {str(places)!r}; sys.exit(enflame_metrics.main(sys.argv[1:]))"
    )
    file = tmp_path / "devices.prom"
    ends = {"ENFLAME_STATE": str(state), "ENFLAME_ROOT": str(tmp_path)}
    started = subprocess.Popen(
        [sys.executable, "-c", program, str(file), "0.1"],
        env={**os.environ, **ends, "PYTHONPATH": str(ROOT / "src")},
    )
    try:
        yield started, file
    finally:
        started.kill()
        started.wait()


def test_the_process_keeps_the_file_up_and_takes_it_away_at_its_end(
    published: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, file = published
    wait_until(file.exists, 60, "the file")
    first = file.read_text()
    assert value(first, "vllm_device_healthy", device="0") == 1
    assert value(first, "vllm_device_unwell", device="1", reason="link") == 1
    assert file.stat().st_mode & 0o777 == 0o644
    wait_until(lambda: file.read_text() != first, 60, "another look")
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert list(file.parent.glob("*.prom*")) == []


def test_each_metric_has_a_help_and_a_kind() -> None:
    told = text(samples([device()], Watch(), 1.0))
    named = set(re.findall(r"^(\w+)[ {]", told, re.MULTILINE))
    assert named == set(enflame_metrics.HELP)
    for name in named:
        assert f"# HELP {name} " in told and f"# TYPE {name} " in told


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    precious.chmod(0o600)
    file = tmp_path / "devices.prom"
    for name in (file.name, f".{file.name}.new"):
        (tmp_path / name).symlink_to(precious)
    prometheus.write(file, "told\n")
    assert (precious.read_text(), precious.stat().st_mode & 0o777) == ("kept", 0o600)
    assert not file.is_symlink() and file.read_text() == "told\n"


def test_what_an_unforeseen_end_leaves_grows_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([[device()]])
    monkeypatch.setattr(enflame_metrics, "look", lambda: next(looks))
    file = tmp_path / "devices.prom"
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(StopIteration):
            enflame_metrics.main([str(file), "0.01"])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert value(file.read_text(), "vllm_devices") == 1


def test_on_a_host_it_runs_from_one_folder_whatever_the_rooms_are_here(tmp_path: Path) -> None:
    """Moved files would change where it is started from, and start it again on every host."""
    role = ROOT / "roles/enflame_driver"
    pattern = "'(?m)^from [.][.]', 'from .'"
    assert (role / "vars/main.yml").read_text().count(pattern) == 2
    files = yaml.safe_load((role / "vars/main.yml").read_text())["enflame_driver_program_files"]
    for name in files:
        place = tmp_path / "vllm_ansible" / name.replace("accelerators/", "")
        place.parent.mkdir(parents=True, exist_ok=True)
        program = (ROOT / "src/vllm_ansible" / name).read_text()
        place.write_text(re.sub(r"(?m)^from [.][.]", "from .", program))
    done = subprocess.run(
        [sys.executable, "-m", "vllm_ansible.node.enflame_metrics"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    # It is there, with all that it imports, and asks for its argument.
    assert "IndexError" in done.stderr or "usage" in done.stderr, done.stderr
    assert "ImportError" not in done.stderr and "ModuleNotFoundError" not in done.stderr
