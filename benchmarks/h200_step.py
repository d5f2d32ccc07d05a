#!/usr/bin/env python3
"""Measure a decode step of one R1-shaped rank on an NVIDIA device, eager and captured.

python3 benchmarks/h200_step.py

It computes what one rank of DeepSeek-R1 does in layers with experts, in bf16 with random weights,
by PyTorch's own kernels and without collectives: of 16, 8 and 4 tensor-parallel ranks, and of 16
that keep experts whole. The key `step` of src/vllm_ansible/throughput/h200.json keeps what a
shorter form of it printed on an H200.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

HIDDEN, CONTEXT, ROUTED, CHOSEN = 7168, 1024, 256, 8
QUERY_RANK, LATENT, ROTARY, HEAD = 1536, 512, 64, 128

Weights = dict[str, Any]


@dataclass(frozen=True)
class Shape:
    """What one rank has: layers that fit an H200, experts and their width, attention heads."""

    layers: int
    experts: int
    width: int
    heads: int


SHAPES = {
    "TP16": Shape(58, 256, 128, 8),
    "TP8": Shape(28, 256, 256, 16),
    "TP4": Shape(14, 256, 512, 32),
    "EP16": Shape(58, 16, 2048, 128),
}


def main() -> None:
    """Print the milliseconds of a step by shape and sequences."""
    found = {}
    for name, shape in SHAPES.items():
        found[name] = {"layers": shape.layers, **measure(shape)}
        torch.cuda.empty_cache()
    print(json.dumps(found))


def measure(shape: Shape) -> dict[str, dict[int, float]]:
    """Return the milliseconds of all layers by sequences."""
    layers = [layer(shape) for _ in range(shape.layers)]
    ends = torch.arange(1, shape.experts + 1, device="cuda")
    found: dict[str, dict[int, float]] = {"eager": {}, "graph": {}}
    with torch.inference_mode():
        for sequences in (1, 8, 32, 128):
            rows = weight(sequences, HIDDEN) * 50
            cache = weight(sequences, CONTEXT, LATENT + ROTARY)

            def step(rows: Any = rows, cache: Any = cache) -> Any:
                for one in layers:
                    rows = rows + attention(one, rows, cache)
                    rows = rows + experts(one, rows, ends)
                return rows

            found["eager"][sequences] = timed(step)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            found["graph"][sequences] = timed(graph.replay)
    return found


def weight(*shape: int) -> Any:
    """Return a random tensor."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02


def layer(shape: Shape) -> Weights:
    """Return the weights that one rank has of one layer."""
    return {
        "norms": [weight(HIDDEN), weight(QUERY_RANK), weight(LATENT), weight(HIDDEN)],
        "q_a": weight(QUERY_RANK, HIDDEN),
        "kv_a": weight(LATENT + ROTARY, HIDDEN),
        "q_b": weight(shape.heads * (HEAD + ROTARY), QUERY_RANK),
        "keys": weight(shape.heads, HEAD, LATENT),
        "values": weight(shape.heads, LATENT, HEAD),
        "output": weight(HIDDEN, shape.heads * HEAD),
        "router": weight(ROUTED, HIDDEN),
        "shared_up": weight(2 * shape.width, HIDDEN),
        "shared_down": weight(HIDDEN, shape.width),
        "up": weight(shape.experts, HIDDEN, 2 * shape.width),
        "down": weight(shape.experts, shape.width, HIDDEN),
    }


def norm(rows: Any, gain: Any) -> Any:
    """Return rows normalised."""
    return functional.rms_norm(rows, (rows.shape[-1],), gain)


def attention(one: Weights, rows: Any, cache: Any) -> Any:
    """Return latent attention over the cache, with absorbed keys and values."""
    count, heads = rows.shape[0], one["keys"].shape[0]
    hidden = norm(rows, one["norms"][0])
    query = norm(hidden @ one["q_a"].t(), one["norms"][1]) @ one["q_b"].t()
    latent = hidden @ one["kv_a"].t()
    key = [norm(latent[:, :LATENT], one["norms"][2]), latent[:, LATENT:]]
    query = query.view(count, heads, HEAD + ROTARY)
    absorbed = torch.bmm(query[..., :HEAD].transpose(0, 1), one["keys"]).transpose(0, 1)
    query = torch.cat([absorbed, query[..., HEAD:]], -1)
    cache[:, 0] = torch.cat(key, -1)
    scores = torch.softmax(torch.bmm(query, cache.transpose(1, 2)), -1)
    seen = torch.bmm(scores, cache[..., :LATENT])
    seen = torch.bmm(seen.transpose(0, 1), one["values"]).transpose(0, 1)
    return seen.reshape(count, heads * HEAD) @ one["output"].t()


def experts(one: Weights, rows: Any, ends: Any) -> Any:
    """Return what the chosen experts and the shared one make of the rows."""
    count, width = rows.shape[0], one["down"].shape[1]
    hidden = norm(rows, one["norms"][3])
    share, chosen = torch.topk(torch.sigmoid(hidden @ one["router"].t()), CHOSEN)
    sorted_, order = torch.sort(chosen.flatten() % len(ends))
    offsets = torch.searchsorted(sorted_, ends).int()
    inner = torch._grouped_mm(hidden[order // CHOSEN], one["up"], offs=offsets)
    inner = functional.silu(inner[:, :width]) * inner[:, width:]
    mixed = torch._grouped_mm(inner, one["down"], offs=offsets)
    back = torch.empty_like(mixed)
    back[order] = mixed
    shared = hidden @ one["shared_up"].t()
    shared = (functional.silu(shared[:, :width]) * shared[:, width:]) @ one["shared_down"].t()
    return (back.view(count, CHOSEN, HIDDEN) * share[..., None]).sum(1) + shared


def timed(run: Callable[[], Any], times: int = 10) -> float:
    """Return the milliseconds of one call, the mean after three to warm up."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        run()
    torch.cuda.synchronize()
    return round((time.perf_counter() - start) / times * 1000, 2)


if __name__ == "__main__":
    main()
