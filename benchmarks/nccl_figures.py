#!/usr/bin/env python3
"""Measure NCCL over the devices of one host, with PyTorch alone, and check what arrives.

NCCL_DEBUG=INFO torchrun --nproc-per-node 4 benchmarks/nccl_figures.py OUT.json > OUT.log

tests/data/collectives/ keeps what it wrote on H200. Bytes are those of nccl-tests: of the larger
side. Time is CUDA events' around all repeats, the mean of the ranks, as nccl-tests takes it.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

MIB = 2**20
WIDTH = 4
Work = Callable[[], Any]


def main() -> None:
    """Write one JSON document from the first rank."""
    asked = arguments()
    rank, device = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=torch.device("cuda", device))
    ranks = dist.get_world_size()
    rows = []
    size = MIB
    while size <= asked.most_mib * MIB:
        for operation in OPERATIONS:
            rows.append(measured(operation, size, ranks, asked.times))
        size *= 4
    found = {
        "machine": f"{ranks} {torch.cuda.get_device_name()} of one host",
        "torch": torch.__version__,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("NCCL_")},
        "ranks": ranks,
        "rows": rows,
        "again": [measured("all_reduce", 1024 * MIB, ranks, 5) for _ in range(asked.again)],
        "pairs": pairs(rank, ranks, asked.times) if asked.again else [],
    }
    if rank == 0:
        with open(asked.output, "w", encoding="utf-8") as out:
            json.dump(found, out, indent=1)
    dist.barrier()
    dist.destroy_process_group()


def arguments() -> argparse.Namespace:
    """Return what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output")
    parser.add_argument("--most-mib", type=int, default=4096, help="the largest message")
    parser.add_argument("--times", type=int, default=20, help="timed repeats of each")
    parser.add_argument("--again", type=int, default=0, help="further all-reduces of 1 GiB")
    return parser.parse_args()


def measured(operation: str, size: int, ranks: int, times: int) -> dict[str, Any]:
    """Return seconds, rates in GB/s and wrong elements of one operation at one size."""
    run, wrong = OPERATIONS[operation](size // WIDTH // ranks * ranks, dist.get_rank(), ranks)
    seconds = timed(run, times)
    errors = torch.tensor(float(wrong()), device="cuda")
    dist.all_reduce(errors)
    rate = size / seconds / 1e9
    return {
        "operation": operation,
        "bytes": size,
        "seconds": seconds,
        "algbw": round(rate, 3),
        "busbw": round(rate * FACTORS[operation](ranks), 3),
        "wrong": int(errors.item()),
    }


def timed(run: Work, times: int) -> float:
    """Return the seconds of one call, the mean over the ranks, after five to warm up."""
    for _ in range(5):
        run()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    begin.record()
    for _ in range(times):
        run()
    end.record()
    torch.cuda.synchronize()
    seconds = torch.tensor(begin.elapsed_time(end) / 1e3 / times, device="cuda")
    dist.all_reduce(seconds)
    return float(seconds.item()) / dist.get_world_size()


def pairs(rank: int, ranks: int, times: int) -> list[dict[str, Any]]:
    """Return both directions at once of every pair, in rounds of disjoint pairs."""
    found = []
    for distance in range(1, ranks):
        other = rank ^ distance
        sent = torch.full((256 * MIB // WIDTH,), float(rank), device="cuda")
        got = torch.empty_like(sent)

        def run(other: int = other, sent: Any = sent, got: Any = got) -> None:
            for work in dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, got, other)]
            ):
                work.wait()

        for _ in range(5):
            run()
        dist.barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(times):
            run()
        end.record()
        torch.cuda.synchronize()
        mine = {"pair": [rank, other], "seconds": begin.elapsed_time(end) / 1e3 / times}
        mine["busbw"] = round(256 * MIB / mine["seconds"] / 1e9, 3)
        mine["wrong"] = int((got != float(other)).sum())
        everyone: list[Any] = [None] * ranks
        dist.all_gather_object(everyone, mine)
        found += [one for one in everyone if one["pair"][0] < one["pair"][1]]
    return found


def all_reduce(count: int, rank: int, ranks: int) -> tuple[Work, Work]:
    """Return the call on a buffer of so many elements, and a count of the wrong ones."""
    data = torch.empty(count, device="cuda")

    def wrong() -> Any:
        data.fill_(rank + 1)
        dist.all_reduce(data)
        return (data != ranks * (ranks + 1) / 2).sum()

    return lambda: dist.all_reduce(data), wrong


def all_gather(count: int, rank: int, ranks: int) -> tuple[Work, Work]:
    """Return the call whose output has so many elements, and a count of the wrong ones."""
    got = torch.empty(count, device="cuda")
    part = torch.full((count // ranks,), float(rank + 1), device="cuda")

    def wrong() -> Any:
        got.zero_()
        dist.all_gather_into_tensor(got, part)
        return (got.view(ranks, -1) != numbers(ranks)).sum()

    return lambda: dist.all_gather_into_tensor(got, part), wrong


def reduce_scatter(count: int, rank: int, ranks: int) -> tuple[Work, Work]:
    """Return the call whose input has so many elements, and a count of the wrong ones."""
    data = torch.full((count,), float(rank + 1), device="cuda")
    got = torch.empty(count // ranks, device="cuda")

    def wrong() -> Any:
        got.zero_()
        dist.reduce_scatter_tensor(got, data)
        return (got != ranks * (ranks + 1) / 2).sum()

    return lambda: dist.reduce_scatter_tensor(got, data), wrong


def all_to_all(count: int, rank: int, ranks: int) -> tuple[Work, Work]:
    """Return the exchange of so many elements on each rank, and a count of the wrong ones."""
    data = torch.full((count,), float(rank + 1), device="cuda")
    got = torch.empty_like(data)

    def wrong() -> Any:
        got.zero_()
        dist.all_to_all_single(got, data)
        return (got.view(ranks, -1) != numbers(ranks)).sum()

    return lambda: dist.all_to_all_single(got, data), wrong


def broadcast(count: int, rank: int, ranks: int) -> tuple[Work, Work]:
    """Return the call from the first rank, and a count of the wrong elements."""
    data = torch.empty(count, device="cuda")

    def wrong() -> Any:
        data.fill_(rank + 7)
        dist.broadcast(data, 0)
        return (data != 7).sum()

    return lambda: dist.broadcast(data, 0), wrong


def send_recv(count: int, rank: int, ranks: int) -> tuple[Work, Work]:
    """Return the call in which each rank sends to the next, and a count of the wrong elements."""
    data = torch.full((count,), float(rank), device="cuda")
    got = torch.empty_like(data)
    before = (rank - 1) % ranks

    def run() -> None:
        for work in dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, data, (rank + 1) % ranks),
                dist.P2POp(dist.irecv, got, before),
            ]
        ):
            work.wait()

    def wrong() -> Any:
        got.fill_(-1)
        run()
        return (got != float(before)).sum()

    return run, wrong


def numbers(ranks: int) -> Any:
    """Return 1 to ranks as a column."""
    return torch.arange(1, ranks + 1, device="cuda", dtype=torch.float32).view(ranks, 1)


OPERATIONS: dict[str, Callable[[int, int, int], tuple[Work, Work]]] = {
    "all_reduce": all_reduce,
    "all_gather": all_gather,
    "reduce_scatter": reduce_scatter,
    "all_to_all": all_to_all,
    "broadcast": broadcast,
    "send_recv": send_recv,
}
# Written out so that the file needs nothing of this repository on the machine it measures.
FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda n: 1.0,
    "send_recv": lambda n: 1.0,
}


if __name__ == "__main__":
    main()
