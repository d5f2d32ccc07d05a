#!/usr/bin/env python3
"""What the ways to give every host the engine's environment cost: built, copied, packed, shared.

sudo .venv/bin/python benchmarks/env.py --hosts 16 --round-trip-ms 0.5 --gbit 10

Processor time and sizes are measured on this machine. What a shared directory asks of its server is
counted by a real NFS client in a virtual machine. Both are added up for a round trip and a rate of
the server: an import asks one thing after the other, and all hosts share what the server sends.
Needs root, qemu, mmdebstrap and squashfs-tools.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from env_machine import IMAGE, counted, disk
from processors import busy_share

from vllm_ansible.environment_request import environment_request
from vllm_ansible.node import environment

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements/engine-cpu.txt"
PACKAGES = [ROOT / "packages" / name for name in ("vllm_cpu_ray", "vllm_guard", "vllm_name")]


def main() -> None:
    """Measure each way once and print what docs/environment.md wants to know."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=16)
    parser.add_argument("--round-trip-ms", type=float, default=0.5)
    parser.add_argument("--gbit", type=float, default=10.0, help="rate of the server, in all")
    parser.add_argument("--directory", type=Path, help="where to work; temporary by default")
    parser.add_argument("--output", type=Path, help="write all figures as JSON")
    options = parser.parse_args()
    share = busy_share()
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}, {os.cpu_count()} cores")
    directory = Path(tempfile.mkdtemp(prefix="env-", dir=options.directory))
    try:
        place = build(directory)
        here = on_this_machine(directory, place)
        print(f"this machine was {share():.0%} busy so far")
        there = counted(directory, disk(directory, place, directory / IMAGE))
    finally:
        shutil.rmtree(directory)
    rate = options.gbit * 1e9 / 8
    sums = added_up(here, there, options.hosts, options.round_trip_ms / 1000, rate)
    for title, rows in (("here", here), ("share", there), ("seconds until imported", sums)):
        print(title)
        for name, figures in rows.items():
            told = ", ".join(f"{key} {value:,}" for key, value in figures.items())
            print(f"  {name:20} {told}")
    if options.output:
        text = json.dumps({"here": here, "share": there, "sums": sums}, indent=1)
        options.output.write_text(text + "\n")


def build(directory: Path) -> Path:
    """Return an environment as a host builds it, the packages being in uv's cache."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    request = environment_request(LOCK, PACKAGES, "3.11")
    place = environment.directory(str(directory), request["digest"])
    wanted = {
        **request,
        **{"cluster_dir": str(directory), "directory": str(place), "requirements": str(LOCK)},
        **{"uv": uv, "find_links": [], "torch_backend": "cpu", "environment": {}},
        **{"compiles": False, "compile_bytecode": True},
    }
    environment.build(wanted, lambda *_: None)
    return place


def on_this_machine(directory: Path, place: Path) -> dict[str, dict[str, Any]]:
    """Return seconds and processor seconds of what each way does on a host, and sizes in bytes."""
    found: dict[str, dict[str, Any]] = {}
    shutil.rmtree(place)
    before = os.times()
    began = time.monotonic()
    build(directory)
    after = os.times()
    used = sum(after[2:4]) - sum(before[2:4])
    files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    found["built"] = {
        **{"seconds": round(time.monotonic() - began, 1), "processor_seconds": round(used, 1)},
        **{"files": len(files), "bytes": sum(path.stat().st_size for path in files)},
    }
    found["copied"] = timed(["cp", "-a", str(place), str(directory / "copy")])
    shutil.rmtree(directory / "copy")
    image = directory / IMAGE
    packing = ["mksquashfs", str(place), str(image), "-comp", "zstd"]
    # The level squashfs-tools takes by itself, 15, needs minutes for torch.
    packing += ["-Xcompression-level", "3", "-no-progress", "-quiet"]
    found["packed"] = {**timed(packing), "bytes": image.stat().st_size}
    found["unpacked"] = timed(["unsquashfs", "-q", "-n", "-d", str(directory / "out"), str(image)])
    shutil.rmtree(directory / "out")
    check = [str(place / "bin/python"), "-c", environment.IMPORT_CHECK]
    found["import"] = min((timed(check) for _ in range(3)), key=lambda one: float(one["seconds"]))
    return found


def timed(command: Sequence[str]) -> dict[str, Any]:
    """Return seconds and processor seconds of a command, which must succeed."""
    began = time.monotonic()
    process = subprocess.Popen(
        list(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"env: {command[0]} failed")
    return {
        "seconds": round(time.monotonic() - began, 1),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 1),
    }


def added_up(
    here: Mapping[str, Mapping[str, Any]],
    there: Mapping[str, Mapping[str, Any]],
    hosts: int,
    round_trip: float,
    rate: float,
) -> dict[str, dict[str, float]]:
    """Return seconds until all hosts have imported, first and next time; server bytes/s, seconds.

    Each host works by itself; what the server sends, all of them share.
    """

    def asked(way: str) -> float:
        return there[way]["operations"] * round_trip + there[way]["bytes"] * hosts / rate

    imported = here["import"]["seconds"]
    built = here["built"]["seconds"]
    unpacked = asked("image copied") + here["unpacked"]["seconds"]
    ways = {
        # The build ends with its first import.
        "built by each": (built, imported),
        "shared": (built + asked("first import") + imported, asked("next import") + imported),
        "copied": (built + asked("copied") + here["copied"]["seconds"] + imported, imported),
        "packed, unpacked": (
            built + here["packed"]["seconds"] + unpacked + imported,
            imported,
        ),
        "packed, mounted": (
            built + here["packed"]["seconds"] + asked("image, first import") + imported,
            asked("image, next import") + imported,
        ),
    }
    return {
        way: {"first": round(first, 1), "next": round(later, 1)}
        for way, (first, later) in ways.items()
    }


if __name__ == "__main__":
    main()
