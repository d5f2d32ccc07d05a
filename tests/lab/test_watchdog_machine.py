"""The watchdog on a machine of its own: its clock is set, and it is rebooted.

Hosts of a lab share this machine's clock and kernel, so the host is a virtual machine. The engine
is the stand-in for vLLM; clock, kernel, systemd and boot are real.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.standin import MODEL, environment
from tests.flows.clone import MINUTE, Clone, Ran, wait_until
from tests.flows.greedy import ASK
from vllm_ansible.lab.commands import LabError, missing_tools, run
from vllm_ansible.lab.vm import TOOLS, Machine

pytestmark = [pytest.mark.vm, pytest.mark.soak]
ROOT = Path(__file__).parents[2]
CLUSTER = "clock"
CLUSTER_DIR, RUN_DIR = f"/opt/vllm-ansible/{CLUSTER}", f"/run/vllm-{CLUSTER}"
WHEELS = "/srv/wheels"
# Of every virtual machine of the lab.
ADDRESS = "10.0.2.15"
NAMED_SECONDS = 30.0
SET_SECONDS = 60
# The machine is emulated in software; it takes minutes for what takes seconds elsewhere.
ANSWER_SECONDS = 10 * MINUTE
READ = "import sys; print(open(sys.argv[1]).read())"
SET_CLOCK = """
import sys, time
time.clock_settime(time.CLOCK_REALTIME, time.time() + float(sys.argv[1]))
print(time.time())
"""
# At once and without a sync, when the connection that asks for it is over.
POWER_LOSS = "(sleep 1; echo b > /proc/sysrq-trigger) > /dev/null 2>&1 &"
# Number and start of the server's own process, as the kernel counts from boot.
SERVER = """
import json, os, sys
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        with open(f"/proc/{pid}/environ", "rb") as handle:
            if f"/processes/{sys.argv[1]}.json".encode() in handle.read():
                with open(f"/proc/{pid}/stat") as stat:
                    found.append([int(pid), stat.read().rpartition(")")[2].split()[19]])
    except OSError:
        pass
print(json.dumps(sorted(found)))
"""


def wheels(lock: Path, directory: Path) -> Path:
    """Return a disk with the wheels of two locks, since the machine sees none of this machine's."""
    files, disk = directory / "wheels", directory / "wheels.ext4"
    if disk.exists():
        return disk
    for name in (lock, ROOT / "requirements/tools.txt"):
        argv = ["/usr/bin/python3", "-m", "pip", "download", "--quiet", "--no-deps"]
        argv += ["--only-binary", ":all:", "--dest", str(files), "--requirement", str(name)]
        run(argv, timeout=600)
    run(["mkfs.ext4", "-q", "-d", str(files), str(disk), "600M"])
    return disk


class Site:
    """A cluster of one virtual machine, and the clone that operates it."""

    def __init__(self, machine: Machine, clone: Clone, installs: dict[str, Any]) -> None:
        self.machine, self.clone = machine, clone
        self.inventory = clone.inventory(
            "machine",
            {"vm": machine.variables()},
            cluster_name=CLUSTER,
            accelerator="cpu",
            accelerator_count=1,
            privileges="root",
            sources_environment={
                **{"UV_FIND_LINKS": WHEELS, "UV_OFFLINE": "1"},
                **{"PIP_FIND_LINKS": WHEELS, "PIP_NO_INDEX": "1"},
            },
            # Half of the machine's disk; the stand-in needs a tenth of what vLLM does.
            host_minimum_disk_gib=3,
            # Minutes of an emulated machine, for modules that are loaded once.
            environment_compile_bytecode=False,
            engines=[
                {
                    "name": "chat",
                    "model": MODEL,
                    "executor": "mp",
                    "layout": {"tensor": 1, "pipeline": 1},
                    "vllm_args": {"max_model_len": 512, "kv_cache_memory_bytes": 1 << 27},
                    "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
                }
            ],
            watchdog_mode="observe",
            watchdog_restart="auto",
            **installs,
        )

    def play(self, *arguments: str, playbook: str = "site.yml") -> Ran:
        return self.clone.run(self.inventory, *arguments, playbook=playbook)

    def serve(self) -> Ran:
        # On a busy machine the environment alone took ten minutes.
        ran = self.clone.start(self.inventory, "--skip-tags", "verify,benchmark").result(
            40 * MINUTE
        )
        assert ran.status == 0, ran.output
        return ran

    def status(self) -> tuple[int, str]:
        """Return the exit status of `status.yml`, and what it says in one line."""
        ran = self.play(playbook="playbooks/status.yml")
        return ran.status, " ".join(ran.output.split())

    def python(self, program: str, *arguments: str) -> Any:
        """Return what a program prints as JSON on the machine."""
        return json.loads(self.machine.run(["python3", "-c", program, *arguments]).stdout)

    def named(self) -> dict[str, Any]:
        return dict(self.python(READ, f"{RUN_DIR}/watchdog/state.json"))

    def restarts(self) -> list[dict[str, Any]]:
        path = f"{CLUSTER_DIR}/watchdog/restarts/state.json"
        try:
            kept = self.python(READ, path)["engines"]
        except LabError:  # it is written with the first restart
            return []
        return list(kept.get("chat", {}).get("restarts", []))

    def server(self) -> list[list[Any]]:
        return list(self.python(SERVER, "chat-serve"))

    def answer(self) -> str:
        """Return what the stand-in answers: some text, which says nothing of a model."""
        (engine,) = self.python(READ, f"{CLUSTER_DIR}/plan.json")["engines"]
        url = f"http://{ADDRESS}:{engine['ports']['api']}"
        key = f"{CLUSTER_DIR}/secrets/api_key"
        return str(self.python(ASK, url, key, engine["served_name"])["text"])

    def boot_id(self) -> str:
        """Return the identity of its boot; nothing while it does not answer."""
        said = self.machine.run(["cat", "/proc/sys/kernel/random/boot_id"], check=False, timeout=60)
        return said.stdout.strip() if said.returncode == 0 else ""

    def set_clock(self, seconds: float) -> float:
        """Set the machine's clock by so many seconds; return what it says then."""
        return float(self.python(SET_CLOCK, str(seconds)))

    def kill(self) -> None:
        """End the engine's processes, all of them at once."""
        self.machine.run(["kill", "-KILL", *(str(pid) for pid, _ in self.server())])

    def until_restarted(self, before: int) -> dict[str, Any]:
        """Return what was kept of the restart that came after so many others."""
        return dict(
            wait_until(
                lambda: [one for one in self.restarts()[before:] if "ended_at" in one],
                ANSWER_SECONDS,
                "the engine started again",
                every=1,
            )[-1]
        )

    def reboot(self, *command: str) -> float:
        """Reboot the machine by a command; return after how many seconds it answers SSH."""
        before, began = self.boot_id(), time.monotonic()
        assert before
        self.machine.run(command, check=False, timeout=60)
        wait_until(lambda: self.boot_id() not in ("", before), ANSWER_SECONDS, "a reboot", every=1)
        return time.monotonic() - began


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip(f"the virtual machine's disk needs root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"the virtual machine needs {', '.join(missing)}")
    # A machine that is kept takes up again where it was, as hosts of other flows do.
    kept = os.environ.get("VLLM_ANSIBLE_FLOW_DIR")
    directory = Path(kept) if kept else tmp_path_factory.mktemp("machine")
    shutil.rmtree(directory / "engine", ignore_errors=True)
    installs = environment(directory / "engine")
    disk = wheels(Path(installs["environment_requirements"]), directory)
    root = directory / "vm"
    machine = Machine.create(
        "watchdog", memory_mib=4096, disks=[disk], timeout=MINUTE * 10, root=root
    )
    try:
        mount = f"mkdir -p {WHEELS}; mountpoint -q {WHEELS} || mount -o ro /dev/vdc {WHEELS}"
        machine.run(["sh", "-c", mount])
        made = Site(machine, Clone(directory / "clone"), installs)
        began = time.monotonic()
        made.serve()
        print(f"served {time.monotonic() - began:.0f} s after the run began")
        yield made
    finally:
        if not kept:
            machine.down()


@pytest.mark.parametrize(("seconds", "way"), [(-SET_SECONDS, "back"), (SET_SECONDS, "forward")])
def test_a_clock_that_is_set_is_named_and_the_engine_goes_on(
    site: Site, seconds: int, way: str
) -> None:
    server, restarts = site.server(), len(site.restarts())
    assert server
    # What an earlier test has left is over.
    wait_until(lambda: not site.named()["findings"], 3 * MINUTE, "nothing found", every=1)
    began, looked = site.set_clock(seconds), time.monotonic()
    words = f"the clock of vm was set {way} by {SET_SECONDS} s"

    def found() -> list[dict[str, Any]]:
        return [one for one in site.named()["findings"] if one["found"] == words]

    (one,) = wait_until(found, MINUTE, "the clock named", every=1)
    named = one["named_at"] - began
    print(f"set {way} by {SET_SECONDS} s: named after {named:.1f} s")
    assert 0 <= named <= NAMED_SECONDS and one["kind"] == "clock"
    assert site.answer()
    # It stays named for a minute; what would take the engine for silent has had its time then.
    wait_until(lambda: not site.named()["findings"], 3 * MINUTE, "nothing found", every=1)
    assert time.monotonic() - looked >= 50
    assert site.answer()
    assert site.server() == server and len(site.restarts()) == restarts


def test_an_engine_that_ends_just_after_the_clock_was_set_back_answers_again(site: Site) -> None:
    before = len(site.restarts())
    site.set_clock(-SET_SECONDS)
    began = time.monotonic()
    site.kill()
    restart = site.until_restarted(before)
    print(f"killed beside a clock set back: answers after {time.monotonic() - began:.0f} s")
    assert restart["helped"], restart
    assert site.answer()


@pytest.mark.parametrize("lost", [False, True], ids=["reboot", "power loss while it restarts"])
def test_after_a_reboot_status_names_it_and_a_run_serves_again(site: Site, lost: bool) -> None:
    if lost:
        site.kill()
        held = ["test", "-e", f"{CLUSTER_DIR}/lock.json"]
        wait_until(
            lambda: site.machine.run(held, check=False).returncode == 0, 2 * MINUTE, "a restart"
        )
    up = site.reboot("sh", "-c", POWER_LOSS) if lost else site.reboot("systemctl", "reboot")
    began = time.monotonic()
    # As docs/watchdog.md says: nothing of the cluster starts by itself.
    assert site.server() == []
    status, said = site.status()
    assert status != 0
    for process in ("chat-serve", "watchdog", "watchdog-restarts"):
        assert f"{process}: not running: the host was restarted since" in said, said
    site.serve()
    assert site.answer()
    again = time.monotonic() - began
    print(f"SSH answers after {up:.0f} s; `status.yml` and `site.yml` end {again:.0f} s later")
    wait_until(lambda: site.named()["engines"] == {"chat": "serving"}, 2 * MINUTE, "watched again")
    status, said = site.status()
    assert status == 0, said
    assert site.serve().changed == []
