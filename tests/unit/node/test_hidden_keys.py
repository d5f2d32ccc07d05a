"""A process that prints a secret of its cluster leaves none in its log, under both supervisors."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.launcher import Hiding, read_secrets
from vllm_ansible.node.process import Files
from vllm_ansible.node.systemd import Systemd

from .conftest import SOURCE, Host, alive, wait_until

HERE = Path(__file__).parent
KEY = "k-0123'456789abk-0123'4"
TOKEN = "ray-token-ray-token"  # noqa: S105 of no cluster
WAYS = ["once", "twice", "bytes", "boundary"]
# A systemd in namespaces of its own makes its groups below one that is removed with it. Of cgroups
# it sees the second version alone, which machines with the first one have beside it.
APART = """
set -e
above=$(findmnt -n -t cgroup2 -o TARGET | head -n 1)$(sed -n 's/^0:://p' /proc/self/cgroup)
own=$(mktemp -d -p "$above" vllm-ansible-XXXXXX)
echo 0 >"$own/cgroup.procs"
ended=0
unshare --cgroup --pid --fork --mount-proc sh -c "$1" sh "$own" "$@" || ended=$?
echo 0 >"$above/cgroup.procs"
find "$own" -depth -type d -exec rmdir {} +
exit "$ended"
"""
INSTANCE = """
set -e
mount --bind "$1" /sys/fs/cgroup
shift 3
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system
mkdir -m 711 /run/user-0
export XDG_RUNTIME_DIR=/run/user-0 XDG_CONFIG_HOME=$1/config SYSTEMD_LOG_TARGET=console
/lib/systemd/systemd --user --unit=basic.target >"$1/systemd.log" 2>&1 &
for _ in $(seq 200); do [ ! -S /run/user-0/systemd/private ] || break; sleep 0.05; done
# As the machine's own has it: units of other users tell that they have started.
chmod 755 /run/user-0/systemd
chmod 777 /run/user-0/systemd/notify
shift
exec "$@"
"""


def secrets(cluster_dir: Path) -> Path:
    """Put the secrets of a cluster where a host has them, and return the file of the key."""
    directory = cluster_dir / "secrets"
    directory.mkdir(parents=True)
    (directory / "api_key").write_text(f"{KEY}\n")
    (directory / "ray_token").write_text(TOKEN)
    (directory / "object_storage_credentials").write_text("aws_secret_access_key = sword/fish+1\n")
    return directory / "api_key"


def printing(how: str, key_file: Path) -> dict[str, Any]:
    return {"argv": [sys.executable, str(HERE / "printing.py"), how, str(key_file)]}


def clean(text: str) -> bool:
    """Tell whether a log holds nothing of the key, neither as it is nor as Python prints it."""
    return KEY not in text and KEY[:12] not in text and KEY[-12:] not in text


@pytest.mark.parametrize("how", WAYS)
def test_a_key_that_is_printed_is_not_in_the_log(host: Host, how: str) -> None:
    log = Path(host.manage(printing(how, secrets(host.cluster_dir)))["log"])
    wait_until(lambda: "exit_status" in host.state())
    text = log.read_text()
    assert clean(text)
    assert text.startswith("begins\n") and text.endswith("ends\n")
    assert "non-default args: {'api_key': ['<hidden>'], 'port': 8000}\n" in text


def test_nothing_else_of_the_log_is_lost_or_changed(host: Host) -> None:
    log = Path(host.manage(printing("much", secrets(host.cluster_dir)))["log"])
    wait_until(lambda: "exit_status" in host.state())
    lines = log.read_text().splitlines()
    assert lines[1:-2] == [str(number) for number in range(200_000)]
    assert lines[0] == "begins" and "<hidden>" in lines[-2] and lines[-1] == "ends"


def test_the_last_words_of_a_killed_process_are_in_its_log(host: Host) -> None:
    log = Path(host.manage(printing("killed", secrets(host.cluster_dir)))["log"])
    wait_until(lambda: "exit_status" in host.state())
    assert log.read_text().endswith("last words") and clean(log.read_text())
    assert host.processes()["e0-serve"]["exit_status"] == 128 + signal.SIGKILL


def test_a_filter_that_was_killed_is_started_again(host: Host) -> None:
    go = host.root / "go"
    key_file = secrets(host.cluster_dir)
    wait = f"until [ -e '{go}' ]; do sleep 0.05; done"
    program = f"echo one; {wait}; cat '{key_file}'; sleep 600"
    started = host.manage({"argv": ["/bin/sh", "-c", program]})
    log = Path(started["log"])
    wait_until(lambda: log.read_text() == "one\n")
    launcher = host.state()["launcher"]["pid"]
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    (first,) = {int(child) for child in children} - {started["pid"]}
    os.kill(first, signal.SIGKILL)
    go.touch()
    wait_until(lambda: log.read_text() == "one\n<hidden>\n")
    assert alive(started["pid"])


def test_a_filter_that_its_launcher_leaves_ends_with_what_it_reads(host: Host) -> None:
    secrets(host.cluster_dir)
    host.manage({"argv": ["/bin/sleep", "600"]})
    os.kill(host.state()["launcher"]["pid"], signal.SIGKILL)
    wait_until(lambda: not host.processes()["e0-serve"]["running"])
    wait_until(lambda: not [pid for pid in host.everything() if names_launcher(pid)])


def names_launcher(pid: int) -> bool:
    """Tell whether a process is a launcher or a filter of one."""
    try:
        return b"launcher.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_what_comes_in_pieces_is_hidden_wherever_it_is_cut() -> None:
    words = ["abcdabcd", "abcdabcdefgh", "xabcdabcdx", TOKEN]
    hiding = Hiding(words)
    text = "-".join((*words, "abcdab")).encode()
    whole = b"<hidden>-<hidden>-<hidden>-<hidden>-abcdab"
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            told, held = b"", b""
            for piece in (text[:first], text[first:second], text[second:]):
                part, held = hiding.split(held + piece)
                told += part
            assert told + hiding.split(held, last=True)[0] == whole


def test_what_holds_no_begin_of_a_secret_waits_for_nothing() -> None:
    assert Hiding([TOKEN]).split(b"a line\n") == (b"a line\n", b"")
    assert Hiding([TOKEN]).split(b"a line of ray-") == (b"a line of ", b"ray-")


def test_secrets_are_read_from_regular_files_alone(tmp_path: Path) -> None:
    directory = secrets(tmp_path).parent
    (directory / "link").symlink_to("/etc/hostname")
    os.mkfifo(directory / "fifo")
    words, unread = read_secrets(str(directory))
    assert words == {KEY, TOKEN, "sword/fish+1"}
    assert unread == [str(directory / "link")]


Instance = Callable[..., dict[str, Any]]


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    """Call node code beside a systemd of its own, whose processes are gone when it returns."""
    command = ["unshare", "--mount", "sh", "-c", APART, "sh"]
    needed = ("/lib/systemd/systemd", "systemctl", "unshare", "findmnt")
    if os.geteuid() != 0 or not all(map(shutil.which, needed)):
        pytest.skip(f"a systemd of its own needs root, and {', '.join(needed)}")
    tried = subprocess.run([*command, "exit 0"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces and groups for a systemd of its own: {tried.stderr.strip()}")
    units = tmp_path / "config/systemd/user"
    units.mkdir(parents=True)

    def call(**request: Any) -> Any:
        with tempfile.TemporaryFile("w+") as given:
            json.dump({"unit_dir": str(units), **request}, given)
            given.seek(0)
            done = subprocess.run(
                [*command, INSTANCE, "sh", tmp_path, sys.executable, HERE / "unit_driver.py"],
                stdin=given,
                env={**os.environ, "PYTHONPATH": str(SOURCE)},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return call


@pytest.mark.parametrize("how", [*WAYS, "killed"])
def test_a_key_that_a_unit_prints_is_not_in_the_log(
    instance: Instance, how: str, tmp_path: Path
) -> None:
    cluster_dir = tmp_path / "demo cluster"
    found = instance(cluster_dir=str(cluster_dir), wanted=printing(how, secrets(cluster_dir)))
    text = (cluster_dir / "logs/e0-serve.log").read_text()
    assert clean(text)
    assert "non-default args: {'api_key': ['<hidden>'], 'port': 8000}\n" in text
    assert text.startswith("begins\n")
    assert text.endswith("last words" if how == "killed" else "ends\n")
    assert found["ended"]["exit_status"] == (128 + signal.SIGKILL if how == "killed" else None)


def test_a_unit_is_known_by_its_program_and_hands_it_signals(
    instance: Instance, tmp_path: Path
) -> None:
    cluster_dir = tmp_path / "demo"
    secrets(cluster_dir)
    program = "trap 'echo heard' USR1; trap 'echo bye; exit 3' TERM; echo ready; "
    program += "while :; do sleep 0.05; done"
    argv = ["/bin/sh", "-c", program]
    found = instance(cluster_dir=str(cluster_dir), wanted={"argv": argv}, stop_seconds=10)
    assert found["command"] == argv
    assert found["started"]["running"] and found["started"]["pid"] == found["pid"]
    assert found["stop_seconds"] < 5 and found["left"] == 0
    assert (cluster_dir / "logs/e0-serve.log").read_text() == "ready\nheard\nbye\n"
    assert not (cluster_dir / "processes/launcher.py").exists()


def test_a_unit_whose_program_is_missing_is_refused(instance: Instance, tmp_path: Path) -> None:
    cluster_dir = tmp_path / "demo"
    wanted = {"argv": ["/bin/there-is-none", "600"]}
    found = instance(cluster_dir=str(cluster_dir), wanted=wanted)
    assert found["error"].startswith("systemctl start vllm-demo-e0-serve.service failed")
    log = (cluster_dir / "logs/e0-serve.log").read_text()
    assert log.startswith("/bin/there-is-none could not be started: FileNotFoundError")


def test_the_service_runs_the_launcher_in_directories_that_it_alone_may_enter(
    instance: Instance,
) -> None:
    service = pwd.getpwnam("nobody")
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        cluster_dir = Path(place, "demo")
        key_file = secrets(cluster_dir)
        for directory in (cluster_dir, cluster_dir / "processes", cluster_dir / "logs"):
            directory.mkdir(exist_ok=True)
            os.chown(directory, 0, service.pw_gid)
            directory.chmod(0o750)
        for path in key_file.parent.iterdir():
            os.chown(path, service.pw_uid, service.pw_gid)
            path.chmod(0o600)
        os.chown(key_file.parent, 0, service.pw_gid)
        key_file.parent.chmod(0o750)
        program = f"id -un; cat '{key_file}'; echo ends"
        wanted = {"argv": ["/bin/sh", "-c", program], "user": "nobody"}
        found = instance(cluster_dir=str(cluster_dir), wanted=wanted)
        assert "error" not in found, found["status"]
        assert found["started"]["warnings"] == []
        assert (cluster_dir / "logs/e0-serve.log").read_text() == "nobody\n<hidden>\nends\n"


def test_who_cannot_run_the_launcher_is_told_of(tmp_path: Path) -> None:
    files = Files(str(tmp_path), "e0-serve")
    Path(files.directory).mkdir()
    tmp_path.chmod(0o700)
    command, warnings = Systemd("demo", "", lambda _: (1, "", "")).launch(files, "nobody")
    assert command == []
    assert warnings[0].startswith(f"secrets that it prints are not hidden in {files.log}: nobody ")
