"""What a process that loads has read, and that another which waits has read nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vllm_ansible.node.weights.loading import moved

READS = """
import mmap, sys
with open(sys.argv[1], "rb") as shard, open("/dev/zero", "rb", buffering=0) as store:
    view = mmap.mmap(shard.fileno(), 0, access=mmap.ACCESS_READ)
    print("maps", flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            store.read(1 << 20)
        print("read", flush=True)
"""


@contextmanager
def loader(shard: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", READS, str(shard)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def read(process: subprocess.Popen[str], mib: int) -> None:
    assert process.stdin and process.stdout
    process.stdin.write(f"{mib}\n")
    process.stdin.flush()
    process.stdout.readline()


def test_what_processes_that_map_the_files_read_is_counted(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    shard = tmp_path / "model/a.safetensors"
    shard.write_bytes(b"x" * 4096)
    assert moved.steps(str(tmp_path / "model"), lambda _: True) is None
    with loader(shard) as process:

        def ours(pid: int) -> bool:
            return pid == process.pid

        before = moved.steps(str(tmp_path / "model"), ours)
        assert before is not None
        time.sleep(0.2)
        assert moved.steps(str(tmp_path / "model"), ours) == before, "it waits"
        read(process, 48)
        after = moved.steps(str(tmp_path / "model"), ours)
        assert after is not None and after >= before + 3
        # Not of a directory whose name only begins as this one's.
        assert moved.steps(str(tmp_path / "mod"), ours) is None
        # Nor of another engine that maps the same model.
        assert moved.steps(str(tmp_path / "model"), lambda pid: pid != process.pid) is None
