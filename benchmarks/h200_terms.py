#!/usr/bin/env python3
"""Measure the terms of the throughput model on NVIDIA devices of one host, with PyTorch alone.

torchrun --nproc-per-node 8 benchmarks/h200_terms.py > terms.json

src/vllm_ansible/plan/estimate/throughput/h200.json keeps what it printed on eight H200 (times in
microseconds).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

WIDTH, EXPERTS, CHOSEN, EXPERT_WIDTH = 7168, 256, 8, 512
SHAPES = ((7168, 2112), (8192, 10240), (4096, 14336), (1024, 4096))
REPEATED, CALLS = 20, 200
TOKENS = (1, 8, 32, 128, 512, 2048, 8192)
# More than the caches hold, so that every product reads its weights from memory.
WORKING_SET = 6e8

Work = Callable[[], Any]


def main() -> None:
    """Print one JSON document from the first rank."""
    rank = int(os.environ["RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    found: dict[str, Any] = {"all_reduce": {}, "all_to_all": {}}
    for ranks in (2, 4, 8):
        group = dist.new_group(list(range(ranks)))
        if rank < ranks:
            found["all_reduce"][ranks] = {k: all_reduce(group, k) for k in TOKENS}
            found["all_to_all"][ranks] = {k: all_to_all(group, ranks, k) for k in TOKENS}
        dist.barrier()
    if rank == 0:
        found["memory_bytes"] = torch.cuda.mem_get_info()[1]
        found["launch"] = launches()
        found["gemm"] = {f"{k}x{n}": products(k, n) for k, n in SHAPES}
        found["grouped_gemm_bf16"] = {tokens: grouped(tokens) for tokens in (1, 8, 32, 128, 1024)}
        print(json.dumps(found, indent=1))
    dist.barrier()
    dist.destroy_process_group()


def all_reduce(group: Any, tokens: int) -> dict[str, float]:
    """Return the time of one all-reduce of so many rows, captured and eager."""
    rows = torch.zeros(tokens, WIDTH, device="cuda", dtype=torch.bfloat16)

    def run() -> None:
        for _ in range(REPEATED):
            dist.all_reduce(rows, group=group)

    return {"graph": timed(captured(run), 5) / REPEATED, "eager": timed(run, 5) / REPEATED}


def all_to_all(group: Any, ranks: int, tokens: int) -> float:
    """Return the time of one exchange in which each rank sends about so many rows."""
    sent = torch.zeros(ranks * (tokens // ranks + 1), WIDTH, device="cuda", dtype=torch.bfloat16)
    got = sent.clone()

    def run() -> None:
        for _ in range(REPEATED):
            dist.all_to_all_single(got, sent, group=group)

    return timed(captured(run), 5) / REPEATED


def launches() -> dict[str, dict[str, float]]:
    """Return what one small kernel costs when Python launches it, and in a captured graph."""
    rows = torch.ones(8, 1024, device="cuda", dtype=torch.bfloat16)
    linear = torch.nn.Linear(1024, 1024).cuda().bfloat16()
    norm = torch.nn.RMSNorm(1024).cuda().bfloat16()
    kinds: dict[str, Work] = {
        "add": lambda: rows + rows,
        "norm": lambda: norm(rows),
        "linear": lambda: linear(rows),
    }
    found = {}
    with torch.inference_mode():
        for name, kind in kinds.items():

            def run(kind: Work = kind) -> None:
                for _ in range(CALLS):
                    kind()

            found[name] = {"eager": timed(run) / CALLS, "graph": timed(captured(run)) / CALLS}
    return found


def products(inner: int, outer: int) -> dict[str, dict[int, float]]:
    """Return the time of one dense product by rows, in bf16 and fp8, weights read from memory."""
    count = max(8, int(WORKING_SET // (inner * outer * 2)))
    weights = [torch.randn(outer, inner, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
    small = [one.to(torch.float8_e4m3fn) for one in weights]
    scale = torch.ones((), device="cuda")
    found: dict[str, dict[int, float]] = {"bf16": {}, "fp8": {}}
    for rows in (1, 16, 64, 256, 4096):
        x = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16)
        y = x.to(torch.float8_e4m3fn)
        found["bf16"][rows] = timed(captured(lambda x=x: [x @ one.t() for one in weights])) / count
        if rows >= 16:
            run = captured(
                lambda y=y: [
                    torch._scaled_mm(y, one.t(), scale, scale, out_dtype=torch.bfloat16)
                    for one in small
                ]
            )
            found["fp8"][rows] = timed(run) / count
    return found


def grouped(tokens: int) -> float:
    """Return the time of one grouped product of so many tokens over their experts."""
    weights = torch.randn(EXPERTS, WIDTH, EXPERT_WIDTH, device="cuda", dtype=torch.bfloat16)
    chosen = torch.stack([torch.randperm(EXPERTS)[:CHOSEN] for _ in range(tokens)]).flatten()
    ends = torch.bincount(chosen, minlength=EXPERTS).cumsum(0).int().cuda()
    rows = torch.randn(tokens * CHOSEN, WIDTH, device="cuda", dtype=torch.bfloat16)
    return timed(captured(lambda: torch._grouped_mm(rows, weights, offs=ends)))


def captured(run: Work) -> Work:
    """Return a function that replays what `run` launches."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def timed(run: Work, times: int = 20) -> float:
    """Return the microseconds of one call, the mean after three to warm up."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / times * 1e6


if __name__ == "__main__":
    main()
