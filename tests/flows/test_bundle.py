"""From a bundle to an answer where no packet leaves, by a user who has nothing but the bundle."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from vllm_ansible.bundle.command import CACHE

from .clone import REPOSITORY
from .enclosure import Enclosure, lacking

pytestmark = [pytest.mark.soak, pytest.mark.engine, pytest.mark.lab]
PYTHON = "/usr/bin/python3"
# torch's rendezvous asks the name server of this host for the name of 127.0.0.1, as an address of
# IPv6 that no hosts file has, and waits 10 s where none answers: it cannot be told not to.
OWN_NAME = " 17 53 1.0.0.127.in-addr.arpa "


@pytest.fixture(scope="module")
def enclosure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Enclosure]:
    if os.geteuid() != 0 or lacking():
        pytest.skip(
            f"a namespace and a user need root and {', '.join(lacking()) or 'nothing else'}"
        )
    made = Enclosure(tmp_path_factory.mktemp("enclosure"))
    yield made
    made.close()


def test_the_watch_sees_a_name_that_is_looked_up_and_a_connection(enclosure: Enclosure) -> None:
    assert enclosure.attempts() == []
    ask = "import socket; socket.setdefaulttimeout(1); socket.create_connection(({!r}, 443))"
    enclosure.run(PYTHON, "-c", ask.format("198.51.100.7"))
    assert {one[:18] for one in enclosure.attempts()} == {"198.51.100.7 6 443"}
    enclosure.run("timeout", "2", PYTHON, "-c", ask.format("index.example"))
    assert "192.0.2.1 17 53 index.example" in enclosure.attempts()[-1]


def test_a_user_with_the_bundle_alone_gets_an_answer_and_nobody_wants_to_leave(
    enclosure: Enclosure, tmp_path: Path
) -> None:
    release = subprocess.run(
        [PYTHON, "-c", "import sys; print('{}.{}'.format(*sys.version_info))"],
        **{"capture_output": True, "text": True, "check": True},
    ).stdout.strip()
    bundle = enclosure.home / "local.tar"
    command = [str(Path(sys.executable).with_name("vllm-ansible")), "bundle", "--python", release]
    command += ["-i", str(REPOSITORY / "inventories/local"), "--to", str(bundle)]
    # Kept between runs, as for a user: a second bundle fetches nothing.
    subprocess.run([*command, "--cache", str(Path(CACHE).expanduser())], check=True)
    bundle.chmod(0o644)
    before = len(enclosure.attempts())
    unpacked = enclosure.run("tar", "-xf", str(bundle))
    assert unpacked.returncode == 0, unpacked.stderr
    bundle.unlink()
    ran = enclosure.run(PYTHON, "local/start")
    print(ran.stdout, ran.stderr)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Paris" in ran.stdout
    project = enclosure.home / "local/project"
    again = enclosure.run(PYTHON, "local/start")
    print(again.stdout, again.stderr)
    assert again.returncode == 0
    assert "changed=0" in again.stdout
    down = enclosure.run(
        *("env", "PATH=.venv/bin:/usr/bin:/bin", "ansible-playbook", "playbooks/teardown.yml"),
        *("-i", "inventories/local"),
        directory=project,
    )
    assert down.returncode == 0, down.stdout
    left = [one for one in enclosure.attempts()[before:] if OWN_NAME not in one]
    assert "\n".join(left) == ""
    shutil.rmtree(enclosure.home / "local")
