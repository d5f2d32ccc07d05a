#!/usr/bin/env python3
"""Time the all-reduce of decoding steps: vLLM's own kernel beside NCCL, in captured graphs.

PYTHON -m torch.distributed.run --nproc-per-node N benchmarks/device/all_reduce.py --to F.json

PYTHON is that of an environment with vLLM. Tensors are bfloat16, tokens x width, reduced as ranks
of tensor parallelism reduce them. A graph holds 20 of one size, and every result is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from vllm.distributed.device_communicators.custom_all_reduce import CustomAllreduce

EACH, ROUNDS = 20, 15
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
Reduce = Callable[[torch.Tensor], torch.Tensor | None]


def nccl(tensor: torch.Tensor) -> torch.Tensor:
    """Reduce a copy in place, as vLLM does where its own kernel does not serve."""
    out = tensor.clone()
    dist.all_reduce(out)
    return out


def graph_us(reduce: Reduce, tensor: torch.Tensor, capture: Any) -> float | None:
    """Return microseconds of one all-reduce in a graph; None where this way does not serve it."""
    if reduce(tensor) is None:
        return None
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with capture, torch.cuda.stream(stream):
        reduce(tensor)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            found = [reduce(tensor) for _ in range(EACH)]
    times = []
    for round_ in range(ROUNDS + 2):
        dist.barrier()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if round_ >= 2:
            times.append(begin.elapsed_time(end) * 1e3 / EACH)
    expected = float(sum(range(1, dist.get_world_size() + 1)))
    for out in found:
        if out is None or not bool((out == expected).all()):
            raise SystemExit(f"a wrong sum of {tuple(tensor.shape)}: expected {expected}")
    slowest = torch.tensor([statistics.median(times)], device="cuda")
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return round(slowest.item(), 2)


def main() -> None:
    """Measure each size both ways; rank 0 writes what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--to", type=Path, required=True, metavar="FILE")
    parser.add_argument("--width", type=int, nargs="+", default=[4096, 7168])
    options = parser.parse_args()
    dist.init_process_group("nccl")
    device = torch.device("cuda", dist.get_rank())
    torch.cuda.set_device(device)
    ours = CustomAllreduce(dist.new_group(backend="gloo"), device)
    rows = []
    for width in options.width:
        for tokens in TOKENS:
            shape = (tokens, width)
            tensor = torch.full(shape, dist.get_rank() + 1.0, dtype=torch.bfloat16, device=device)
            rows.append(
                {
                    "tokens": tokens,
                    "width": width,
                    "nccl_us": graph_us(nccl, tensor, nullcontext()),
                    "vllm_us": graph_us(ours.custom_all_reduce, tensor, ours.capture()),
                }
            )
    if dist.get_rank() == 0:
        found = {
            "devices": dist.get_world_size(),
            "device": torch.cuda.get_device_name(),
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "torch": torch.__version__,
            "rows": rows,
        }
        options.to.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    ours.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
