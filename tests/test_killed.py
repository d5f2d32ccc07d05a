"""What a run of the tests that was killed has left is gone when the next one begins; no more."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import killed
from tests.flows.clone import wait_until
from vllm_ansible.node import launcher

ROOT = Path(__file__).parents[1]
# A run: it begins, starts what tests start, says what that is, and waits to be killed.
RUN = """
import json, os, subprocess, sys, time
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from tests import killed
records, base = map(Path, sys.argv[1:3])
killed.begin(records)
killed.remember(directory=str(base))
python = sys.executable
alone = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "start_new_session": True}
sleep = [python, "-c", "import time; time.sleep(600)"]
shares = '''
import sys, time
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *_: None
one = shared_memory.SharedMemory(create=True, size=4096)
open(sys.argv[1], "w").write(one.name)
time.sleep(600)
'''
cluster, sockets = base / "cluster", Path(sys.argv[3])
cluster.mkdir(parents=True)
sockets.mkdir(mode=0o700)
(cluster / "supervisord.conf").write_text(f"[supervisord]\\npidfile = {sockets}/supervisord.pid\\n")
marked = {"PATH": os.environ["PATH"], "VLLM_ANSIBLE_PROCESS": f"{cluster}/processes/a.json"}
# supervisord is found by its configuration alone; this stands in for it.
daemon = [*sleep, "-m", "supervisor.supervisord", "-c", str(cluster / "supervisord.conf")]
made = {
    "tool": subprocess.Popen(sleep, **alone).pid,
    "program": subprocess.Popen(sleep, env=marked, **alone).pid,
    "supervisord": subprocess.Popen(daemon, env={}, **alone).pid,
    "sharer": subprocess.Popen([python, "-c", shares, str(cluster / "name")], **alone).pid,
}
while not (cluster / "name").exists() or not (cluster / "name").read_text():
    time.sleep(0.05)
print(json.dumps({**made, "shared": (cluster / "name").read_text()}), flush=True)
time.sleep(600)
"""


def outside() -> dict[str, str]:
    """Return the environment of one who is in no run yet."""
    clean = {name: value for name, value in os.environ.items() if name != killed.MARK}
    return {**clean, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}


class Begun:
    """A run of its own, which has made what tests make."""

    def __init__(self, records: Path, directory: Path) -> None:
        self.base, self.sockets = directory / "base", directory / "sockets"
        directory.mkdir()
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, str(records), str(self.base), str(self.sockets)],
            env=outside(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.made: dict[str, Any] = json.loads(self.process.stdout.readline())
        self.shared = Path(launcher.SHARED_DIR, self.made.pop("shared"))

    def living(self) -> set[str]:
        found = launcher.process_table()
        return {name for name, pid in self.made.items() if pid in found}

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def close(self) -> None:
        self.kill()
        for pid in self.made.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.shared.unlink(missing_ok=True)


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "records"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def run(records: Path, tmp_path: Path) -> Iterator[Callable[[str], Begun]]:
    begun: list[Begun] = []

    def start(name: str) -> Begun:
        begun.append(Begun(records, tmp_path / name))
        return begun[-1]

    yield start
    for one in begun:
        one.close()


def begin(records: Path) -> str:
    """Begin and end a further run, and return what it says."""
    program = (
        "import sys; from pathlib import Path; from tests import killed\n"
        "print(*killed.begin(Path(sys.argv[1])), sep='\\n'); killed.end()"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(records)],
        env=outside(),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    ).stdout


def test_what_a_killed_run_has_left_is_removed_and_nothing_of_a_live_one(
    run: Callable[[str], Begun], records: Path, tmp_path: Path
) -> None:
    dead, live = run("dead"), run("live")
    # Somebody looks at a log of the dead run.
    (tmp_path / "log").write_text("")
    words = [sys.executable, "-c", "import time; time.sleep(600)", str(dead.base / "log")]
    reader = subprocess.Popen(words, env=outside())
    try:
        dead.kill()
        assert dead.living() == {"tool", "program", "supervisord", "sharer"}
        assert dead.shared.exists()

        told = begin(records)
        # Who has no environment any more is ending, and may be for a moment more.
        wait_until(lambda: not dead.living(), 60, "the end of what was killed")
        assert not (dead.shared.exists() or dead.base.exists() or dead.sockets.exists())
        assert f"shared memory {dead.shared.name}" in told
        assert reader.poll() is None
        assert live.living() == {"tool", "program", "supervisord", "sharer"}
        assert live.shared.exists() and live.base.exists() and live.sockets.exists()
        assert len(list(records.glob("*.jsonl"))) == 1
        assert begin(records).strip() == ""
    finally:
        reader.kill()
        reader.wait()


@pytest.mark.parametrize("change", [{"start_time": 1}, {"boot": "another"}, {"pid": None}])
def test_a_number_that_was_given_on_is_no_live_run(
    change: dict[str, Any], records: Path, tmp_path: Path
) -> None:
    first = killed.identity()
    left, sockets = tmp_path / "left", tmp_path / "sockets"
    left.mkdir()
    sockets.mkdir()
    for name, line in (("live", first), ("dead", {**first, **change})):
        lines = (
            [line]
            if name == "live"
            else [line, {"directory": str(left)}, {"run_dir": str(sockets)}]
        )
        text = "".join(json.dumps(one) + "\n" for one in lines)
        # A line that was cut by the kill says nothing.
        (records / f"{name}.jsonl").write_text(text + '{"directory": "/')
    begin(records)
    assert [path.name for path in records.glob("*.jsonl")] == ["live.jsonl"]
    assert not (left.exists() or sockets.exists())


@pytest.mark.parametrize("kind", killed.KINDS)
def test_a_directory_that_a_live_run_uses_too_stays(
    kind: str, records: Path, tmp_path: Path
) -> None:
    """As with the same --basetemp, or the same cluster, twice."""
    first = killed.identity()
    kept = {kind: str(tmp_path / "kept")}
    Path(kept[kind]).mkdir()
    for name, line in (("live", first), ("dead", {**first, "start_time": 1})):
        text = "".join(json.dumps(one) + "\n" for one in (line, kept))
        (records / f"{name}.jsonl").write_text(text)
    begin(records)
    assert Path(kept[kind]).is_dir()
    assert not (records / "dead.jsonl").exists()


def test_a_lab_of_a_live_run_is_not_removed_for_a_dead_one_that_named_it(
    records: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when two runs of one checkout share the lab of molecule."""
    down: list[str] = []

    def opened(name: str, root: Path) -> Any:
        return SimpleNamespace(down=lambda: down.append(name))

    monkeypatch.setattr(killed.Lab, "open", opened)
    first = killed.identity()
    named = {"live": ["both"], "dead": ["both", "left"]}
    for run, labs in named.items():
        begun = first if run == "live" else {**first, "start_time": 1}
        made = [{"lab": [str(tmp_path), lab]} for lab in labs]
        text = "".join(json.dumps(one) + "\n" for one in (begun, *made))
        (records / f"{run}.jsonl").write_text(text)
    assert killed.remove(records / "dead.jsonl") == [f"lab left of {tmp_path}"]
    assert down == ["left"]


def test_a_run_that_cannot_be_seen_from_here_is_left_alone(records: Path, tmp_path: Path) -> None:
    """As one in a container that shares /tmp: its processes have other numbers."""
    first = {**killed.identity(), "pids": "pid:[1]", "start_time": 1}
    (records / "far.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in (first, {"directory": str(tmp_path)}))
    )
    assert begin(records).strip() == ""
    assert (records / "far.jsonl").exists()


def test_this_run_is_recorded() -> None:
    lines = killed.read(Path(os.environ[killed.MARK]))
    assert launcher.alive(lines[0]["pid"], lines[0]["start_time"])
    assert any("directory" in line for line in lines)


LAB = """
import sys, time
from pathlib import Path
from tests import killed
from vllm_ansible.lab import Lab
killed.begin(Path(sys.argv[1]))
killed.remember(lab=[sys.argv[2], "killed"])
lab = Lab.create(1, "killed", root=Path(sys.argv[2]))
lab.link("lab1").limit(rate="50mbit", loss=1)
print(lab.record.token, flush=True)
time.sleep(600)
"""


@pytest.mark.lab
@pytest.mark.soak
def test_a_killed_lab_leaves_no_host_network_table_or_device(
    real_hosts: None, records: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", LAB, str(records), str(tmp_path / "lab")],
        env=outside(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    token = process.stdout.readline().strip()
    process.kill()
    process.wait()
    assert shutil.which("nft")

    def left() -> set[str]:
        looks = {
            "host": ["podman", "ps", "--all", "--format", "{{.Names}}"],
            "network": ["podman", "network", "ls", "--format", "{{.Name}}"],
            "table": ["nft", "list", "tables"],
        }
        shown = {
            name: subprocess.run(argv, capture_output=True, text=True, check=True).stdout
            for name, argv in looks.items()
        }
        return {name for name, text in shown.items() if token in text}

    assert left() == {"host", "network", "table"}
    started = time.monotonic()
    begin(records)
    assert left() == set()
    assert time.monotonic() - started < 120
