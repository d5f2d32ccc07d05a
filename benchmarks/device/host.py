#!/usr/bin/env python3
"""Time what a host's processor does for a step: agree with other ranks over gloo, launch kernels.

PYTHON benchmarks/device/host.py --to F.json

PYTHON is one with PyTorch. Ranks talk over the loopback. A launch is timed until Python has it
back (`issue_us`) and until the device is done (`done_us`), the median of 15 rounds of 400.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

ROUNDS, EACH, CALLS = 15, 400, 1500
PORT = 29710


def agree(rank: int, ranks: int, place: str) -> None:
    """All-reduce as 0.32's ranks in step do, at once and with 1 ms of work between."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    address = f"tcp://127.0.0.1:{PORT + ranks}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
    found = {}
    for name, shape in (("int32 6xN", (6, ranks)), ("int32 2", (2,))):
        for told, work in (("back to back", 0.0), ("1 ms of work between", 1e-3)):
            times = []
            for _ in range(CALLS if not work else CALLS * 2 // 5):
                until = time.perf_counter() + work
                while time.perf_counter() < until:
                    pass
                began = time.perf_counter()
                tensor = torch.zeros(shape, dtype=torch.int32)
                dist.all_reduce(tensor)
                tensor.max().item()
                times.append(1e6 * (time.perf_counter() - began))
            times = sorted(times[100:])
            found[f"{name}, {told}"] = {
                "median_us": round(statistics.median(times), 1),
                "p90_us": round(times[len(times) * 9 // 10], 1),
                "mean_us": round(statistics.mean(times), 1),
            }
    if rank == 0:
        Path(place).write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def launched(call: Callable[[], object], each: int = EACH) -> dict[str, float]:
    """Return microseconds of one call, issued and done."""
    issued, done = [], []
    for _ in range(ROUNDS):
        call()
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(each):
            call()
        issued.append(time.perf_counter() - began)
        torch.cuda.synchronize()
        done.append(time.perf_counter() - began)
    pairs = (("issue_us", issued), ("done_us", done))
    return {name: round(1e6 * statistics.median(times) / each, 2) for name, times in pairs}


def launches() -> dict[str, Any]:
    """Time small operations of Python on the first device, and a graph of 200 of them."""
    how: dict[str, Any] = {"device": "cuda", "dtype": torch.bfloat16}
    x, w = torch.ones(64, 576, **how), torch.ones(576, 576, **how)
    y = torch.empty_like(x)
    linear, norm = torch.nn.Linear(576, 576, bias=False, **how), torch.nn.RMSNorm(576, **how)
    graph = torch.cuda.CUDAGraph()
    torch.add(x, x, out=y)
    with torch.cuda.graph(graph):
        for _ in range(200):
            torch.add(x, x, out=y)
    calls: dict[str, Callable[[], object]] = {
        "add into": lambda: torch.add(x, x, out=y),
        "add": lambda: x + x,
        "mm": lambda: torch.mm(x, w),
        "Linear module": lambda: linear(x),
        "RMSNorm module": lambda: norm(x),
        "silu": lambda: torch.nn.functional.silu(x),
    }
    with torch.inference_mode():
        found: dict[str, Any] = {name: launched(call) for name, call in calls.items()}
        found["graph of 200"] = launched(graph.replay, 1)
    return {"torch": torch.__version__, "device": torch.cuda.get_device_name(), **found}


def main() -> None:
    """Measure with two and four ranks, then launches where there is a device; write JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--to", type=Path, required=True, metavar="FILE")
    place: Path = parser.parse_args().to
    found: dict[str, Any] = {"cores": os.cpu_count()}
    for ranks in (2, 4):
        processes.spawn(agree, (ranks, str(place)), nprocs=ranks)
        found[f"gloo {ranks}"] = json.loads(place.read_text(encoding="utf-8"))
    if torch.cuda.is_available():
        found["launches"] = launches()
    place.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
