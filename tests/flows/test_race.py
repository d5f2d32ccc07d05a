"""An engine's user who does all it can with what it owns, while root runs all of site.yml there."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.lab import Lab

from .clone import MINUTE, Clone, Ran

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.soak]
HOST, USER = "lab1", "vllm-race"
SECRET = "words-of-roots-own"  # noqa: S105 words to look for, no password
PLACE, PEACE, SAID = "/srv/roots", "/srv/peace", "/srv/intruder"
PYTHON = "/usr/bin/python3"
INTRUDERS = 3
SECONDS, ROUNDS, TRIES = 4 * MINUTE, 4, 5000
UNITS = "/etc/systemd/system/vllm-race-"
# What the user may own: the engines' own directories and what they may write for a while.
THEIRS = ("/opt/vllm-ansible/race/", "/run/vllm-race", "/tmp", "/var/tmp", "/dev/shm", "/proc")  # noqa: S108
ENGINE = {
    "name": "chat",
    "model": "package:smollm2-135m-instruct",
    "port": 8470,
    "executor": "mp",
    "layout": {"tensor": 1, "pipeline": 1},
    "vllm_args": {
        "enforce_eager": True,
        "max_model_len": 1024,
        "dtype": "float32",
        "kv_cache_memory_bytes": 1 << 28,
    },
    "probe": {"prompt": "What is the capital of France?", "expect": "Paris"},
}

# Owner, group and mode of what is root's, and all that the user owns or could run as root.
LOOK = """
import json, os, pwd, stat, sys
user = pwd.getpwnam(sys.argv[1]).pw_uid if len(sys.argv) > 1 else -1
roots, users, marked = {}, [], []
for top in ("/bin", "/boot", "/etc", "/home", "/lib", "/opt", "/root", "/run", "/sbin", "/srv",
            "/usr", "/var"):
    for place, folders, files in os.walk(top):
        for name in ["", *files]:
            path = os.path.join(place, name) if name else place
            try:
                found = os.lstat(path)
            except OSError:
                continue
            if found.st_uid == user:
                users.append(path)
            if found.st_mode & 0o6000 and stat.S_ISREG(found.st_mode) and found.st_uid == 0:
                marked.append(path)
            if found.st_uid == 0 and not stat.S_ISLNK(found.st_mode):
                roots[path] = [found.st_uid, found.st_gid, found.st_mode]
print(json.dumps({"roots": roots, "users": users, "marked": marked}))
"""
# Every file in which root's words stand that the user, or anybody but root, may read.
HARVEST = """
import json, os, stat, sys
found = []
for top in ("/opt", "/run", "/tmp", "/var/tmp", "/dev/shm", "/srv", "/var/log"):
    for place, _, files in os.walk(top):
        for name in files:
            path = os.path.join(place, name)
            try:
                is_file = stat.S_ISREG(os.lstat(path).st_mode)
                if is_file and os.path.getsize(path) < 1 << 22:
                    with open(path, "rb") as content:
                        if sys.argv[1].encode() in content.read():
                            found.append(path)
            except OSError:
                continue
print(json.dumps(found))
"""
PREPARE = f"""
import os
os.makedirs({PLACE!r}, mode=0o700)
with open({PLACE + "/words"!r}, "w") as words:
    words.write({SECRET!r})
os.chmod({PLACE + "/words"!r}, 0o600)
print("null")
"""


class Race:
    """One host, its clone, and those who race there."""

    def __init__(self, directory: Path) -> None:
        self.clone = Clone(directory / "clone")
        self.inventory = self.clone.directory / "inventories" / "lab"
        self.lab = Lab.create(hosts=1, name="race-test", inventory=self.inventory, root=directory)
        path = self.inventory / "group_vars/all.yml"
        told = {
            **yaml.safe_load(path.read_text()),
            "cluster_name": "race",
            "engines": [ENGINE],
            "vllm_reference_gib": 0,
        }
        path.write_text(yaml.safe_dump(told))

    def python(self, program: str, *arguments: str) -> Any:
        ran = self.lab.run(HOST, [PYTHON, "-c", program, *arguments], timeout=300)
        return json.loads(ran.stdout)

    def run(self, *arguments: str, playbook: str = "site.yml") -> Ran:
        return self.clone.start(self.inventory, *arguments, playbook=playbook).result(15 * MINUTE)

    def shell(self, line: str) -> str:
        return self.lab.run(HOST, ["sh", "-c", line]).stdout.strip()

    def race(self) -> None:
        """Let them begin."""
        program = (Path(__file__).parent / "intruder.py").read_text()
        self.python(
            "import sys; open('/srv/intruder.py', 'w').write(sys.argv[1]); print(0)", program
        )
        for number in range(INTRUDERS):
            self.shell(
                f"nohup nice -n 10 {PYTHON} /srv/intruder.py {USER} {PLACE} {PEACE} "
                f"> {SAID}{number} 2>&1 < /dev/null & echo $! >> {SAID}.pids"
            )

    def tried(self) -> int:
        """Return how often they tried something; each that ended is a failure."""
        alive = self.shell(f"for one in $(cat {SAID}.pids); do kill -0 $one && echo yes; done")
        assert alive.split() == ["yes"] * INTRUDERS, self.shell(f"cat {SAID}[0-9]")
        last = [self.shell(f"tail -n 1 {SAID}{number}") for number in range(INTRUDERS)]
        return sum(int(one) for one in last if one.isdigit())

    def end(self) -> None:
        self.shell(f"for one in $(cat {SAID}.pids); do kill -KILL $one; done; rm {SAID}.pids")


def how(ran: Ran) -> str:
    """Return how far a run came, and why no further."""
    last, failures = list(ran.stages)[-1:], ran.of("failure")
    return f"exit {ran.status} in {last}" + (f" ({failures[0]['msg'][:120]})" if failures else "")


@pytest.fixture(scope="module")
def race(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Race]:
    kept = os.environ.get("VLLM_ANSIBLE_FLOW_DIR")
    made = Race(Path(kept) / "race" if kept else tmp_path_factory.mktemp("race"))
    try:
        yield made
    finally:
        if not kept:
            made.lab.down()


def test_a_user_who_races_through_all_of_site_yml_gets_nothing_of_roots(
    race: Race, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = race.run()
    assert ran.status == 0, ran.output
    race.python(PREPARE)
    before = race.python(LOOK, USER)
    race.shell(f"touch {PEACE}")
    race.race()
    outcomes, began = [], time.monotonic()
    # Each exchange undone at once, then everything left as it comes: engines may break of that.
    while time.monotonic() - began < SECONDS or len(outcomes) < ROUNDS:
        peaceful = len(outcomes) % 2 == 0
        race.shell(f"{'touch' if peaceful else 'rm -f'} {PEACE}")
        ran = race.run("-e", "allow_disruption=true")
        outcomes.append(f"{'undone' if peaceful else 'left'}: {how(ran)}")
        with capsys.disabled():
            print(f"{time.monotonic() - began:.0f} s: {outcomes[-1]}", flush=True)
        # Refused by name, or to its end; never by a traceback of ours.
        assert "MODULE FAILURE" not in ran.output and "Traceback" not in ran.output, ran.output
        assert SECRET not in ran.output
    tried, seconds = race.tried(), time.monotonic() - began
    assert race.python(HARVEST, SECRET) == [f"{PLACE}/words"]
    during = race.python(LOOK, USER)
    assert sorted({*before["roots"]} & {*during["users"]}) == []
    down = race.run(playbook="playbooks/teardown.yml")
    outcomes.append(f"teardown: {how(down)}")
    race.end()
    with capsys.disabled():
        print(f"{tried} tries in {seconds:.0f} s; {'; '.join(outcomes)}")
    assert tried > TRIES
    after = race.python(LOOK, USER)
    assert [one for one in after["users"] if not one.startswith(THEIRS)] == []
    assert after["marked"] == before["marked"]
    # What is still there is root's as it was, but for what the cluster itself makes anew.
    changed = {
        path: (before["roots"][path], after["roots"].get(path))
        for path in before["roots"]
        if not path.startswith(("/opt/vllm-ansible/race", "/run/", "/var/"))
        and path in after["roots"]
        and after["roots"][path] != before["roots"][path]
    }
    assert changed == {}
    # The units of the cluster's processes are what teardown removes of root's.
    stay = ("/etc/", "/root", "/srv/roots")
    gone = [one for one in before["roots"] if one.startswith(stay) and one not in after["roots"]]
    assert [one for one in gone if not one.startswith(UNITS)] == []
    # Nor did root run anything of theirs, which leaves `ran` beside the words.
    assert race.shell(f"ls {PLACE}") == "words"
    assert race.python(HARVEST, SECRET) == [f"{PLACE}/words"]
    kept = [one for one in race.clone.directory.rglob("*") if one.is_file()]
    assert [one for one in kept if SECRET.encode() in one.read_bytes()] == []
