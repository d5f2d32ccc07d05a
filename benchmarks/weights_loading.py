"""How long a model takes from a cold disk to an accelerator, by the ways vLLM can load it.

    python benchmarks/weights_loading.py --gigabytes 12 --directory DIRECTORY

Needs torch with an accelerator, and safetensors. One line of JSON for each round: seconds of

- dd: reading all files, nothing else;
- lazy: tensor after tensor out of mapped files, as vLLM does by itself on a local disk;
- prefetch: the same, while eight threads read the files into memory
  (`safetensors_load_strategy: prefetch`);
- warm: the same, of files that are in memory already; `warming` is the time that took before;
- runai, fastsafetensors: those packages, where they are installed (`load_format`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import safe_open
from safetensors.torch import save_file

SHARD = 10**9
TENSOR = 4096 * 4096  # of two bytes each
# What vLLM reads ahead with unless told otherwise.
THREADS, BLOCK = 8, 1 << 24
DEVICE = "cuda:0"


def make(directory: Path, size: int) -> list[Path]:
    """Write shards of tensors of 32 MiB."""
    paths = []
    for number in range(max(1, size // SHARD)):
        tensors = {
            f"layers.{number}.{one}.weight": torch.randint(
                -(2**15), 2**15, (4096, 4096), dtype=torch.int16
            ).view(torch.bfloat16)
            for one in range(SHARD // (2 * TENSOR))
        }
        paths.append(directory / f"model-{number:05}.safetensors")
        save_file(tensors, paths[-1])
    return paths


def cold(paths: Sequence[Path]) -> None:
    """Let nothing of the files stay in memory."""
    for path in paths:
        with path.open("rb") as content:
            os.fsync(content.fileno())
            os.posix_fadvise(content.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read(path: Path) -> None:
    """Read a file to its end."""
    with path.open("rb", buffering=0) as content:
        block = bytearray(BLOCK)
        while content.readinto(block):
            pass


def read_all(paths: Sequence[Path]) -> None:
    """Read files as vLLM does ahead of loading."""
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(read, paths))


def dd(paths: Sequence[Path]) -> None:
    """Read the files, one after another."""
    for path in paths:
        command = ["dd", f"if={path}", "of=/dev/null", "bs=16M", "status=none"]
        subprocess.run(command, check=True)


def lazy(paths: Sequence[Path]) -> None:
    """Copy tensor after tensor to the accelerator."""
    for path in paths:
        with safe_open(path, framework="pt", device="cpu") as content:
            for name in content.keys():  # noqa: SIM118  no mapping
                content.get_tensor(name).to(DEVICE)
    torch.cuda.synchronize()


def prefetch(paths: Sequence[Path]) -> None:
    """Copy tensors while other threads read ahead."""
    ahead = threading.Thread(target=read_all, args=(paths,))
    ahead.start()
    lazy(paths)
    ahead.join()


def runai(paths: Sequence[Path]) -> None:
    """Load by Run:ai's streamer."""
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_files([str(path) for path in paths])
        for _, tensor in streamer.get_tensors():
            tensor.to(DEVICE)
    torch.cuda.synchronize()


def fastsafetensors(paths: Sequence[Path]) -> None:
    """Load by fastsafetensors, without GPUDirect Storage."""
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    for path in paths:
        loader = SafeTensorsFileLoader(SingleGroup(), torch.device(DEVICE), nogds=True)
        loader.add_filenames({0: [str(path)]})
        buffer = loader.copy_files_to_device()
        for name in buffer.key_to_rank_lidx:
            buffer.get_tensor(name)
        torch.cuda.synchronize()
        buffer.close()
        loader.close()


def timed(act: Callable[[Sequence[Path]], None], paths: Sequence[Path]) -> float:
    """Return the seconds of one way."""
    started = time.monotonic()
    act(paths)
    return round(time.monotonic() - started, 2)


def measure(paths: Sequence[Path]) -> dict[str, float]:
    """Return the seconds of each way, each from a cold disk."""
    ways: dict[str, Callable[[Sequence[Path]], None]]
    ways = {"dd": dd, "lazy": lazy, "prefetch": prefetch}
    if importlib.util.find_spec("runai_model_streamer"):
        ways["runai"] = runai
    if importlib.util.find_spec("fastsafetensors"):
        ways["fastsafetensors"] = fastsafetensors
    found = {}
    for name, way in ways.items():
        cold(paths)
        found[name] = timed(way, paths)
    cold(paths)
    return {**found, "warming": timed(read_all, paths), "warm": timed(lazy, paths)}


def main() -> None:
    """Print one line of JSON a round."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gigabytes", type=float, default=12)
    parser.add_argument("--directory", type=Path, help="on the disk to measure")
    parser.add_argument("--rounds", type=int, default=2)
    wanted = parser.parse_args()
    with TemporaryDirectory(dir=wanted.directory) as place:
        paths = make(Path(place), int(wanted.gigabytes * 1e9))
        torch.zeros(1, device=DEVICE)
        for _ in range(wanted.rounds):
            size = sum(path.stat().st_size for path in paths)
            print(json.dumps({"gigabytes": round(size / 1e9, 2), **measure(paths)}), flush=True)


if __name__ == "__main__":
    main()
