#!/usr/bin/env python3
"""Measure a decode step of one R1-shaped rank on an NVIDIA device, eager and captured.

python3 benchmarks/h200_step.py

It computes what one of 16 tensor-parallel ranks of DeepSeek-R1 does in its 58 layers with experts,
in bf16 with random weights, by PyTorch's own kernels and without collectives. The key `step` of
src/vllm_ansible/throughput/h200.json keeps what a shorter form of it printed on an H200.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

LAYERS, HIDDEN, HEADS, CONTEXT = 58, 7168, 8, 1024
QUERY_RANK, LATENT, ROTARY, HEAD = 1536, 512, 64, 128
EXPERTS, CHOSEN, WIDTH, VOCABULARY = 256, 8, 128, 8080

Weights = dict[str, Any]


def main() -> None:
    """Print the milliseconds of a step by sequences."""
    layers = [layer() for _ in range(LAYERS)]
    head = weight(VOCABULARY, HIDDEN)
    ends = torch.arange(1, EXPERTS + 1, device="cuda")
    found: dict[str, dict[int, float]] = {"eager": {}, "graph": {}}
    with torch.inference_mode():
        for sequences in (1, 8, 32, 128):
            rows = weight(sequences, HIDDEN) * 50
            cache = weight(sequences, CONTEXT, LATENT + ROTARY)

            def step(rows: Any = rows, cache: Any = cache) -> Any:
                for one in layers:
                    rows = rows + attention(one, rows, cache)
                    rows = rows + experts(one, rows, ends)
                return rows @ head.t()

            found["eager"][sequences] = timed(step)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step()
            found["graph"][sequences] = timed(graph.replay)
    print(json.dumps(found))


def weight(*shape: int) -> Any:
    """Return a random tensor."""
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16) * 0.02


def layer() -> Weights:
    """Return the weights that one rank has of one layer."""
    return {
        "norms": [weight(HIDDEN), weight(QUERY_RANK), weight(LATENT), weight(HIDDEN)],
        "q_a": weight(QUERY_RANK, HIDDEN),
        "kv_a": weight(LATENT + ROTARY, HIDDEN),
        "q_b": weight(HEADS * (HEAD + ROTARY), QUERY_RANK),
        "keys": weight(HEADS, HEAD, LATENT),
        "values": weight(HEADS, LATENT, HEAD),
        "output": weight(HIDDEN, HEADS * HEAD),
        "router": weight(EXPERTS, HIDDEN),
        "shared_up": weight(2 * WIDTH, HIDDEN),
        "shared_down": weight(HIDDEN, WIDTH),
        "up": weight(EXPERTS, HIDDEN, 2 * WIDTH),
        "down": weight(EXPERTS, WIDTH, HIDDEN),
    }


def norm(rows: Any, gain: Any) -> Any:
    """Return rows normalised."""
    return functional.rms_norm(rows, (rows.shape[-1],), gain)


def attention(one: Weights, rows: Any, cache: Any) -> Any:
    """Return latent attention over the cache, with absorbed keys and values."""
    count = rows.shape[0]
    hidden = norm(rows, one["norms"][0])
    query = norm(hidden @ one["q_a"].t(), one["norms"][1]) @ one["q_b"].t()
    latent = hidden @ one["kv_a"].t()
    key = [norm(latent[:, :LATENT], one["norms"][2]), latent[:, LATENT:]]
    query = query.view(count, HEADS, HEAD + ROTARY)
    absorbed = torch.bmm(query[..., :HEAD].transpose(0, 1), one["keys"]).transpose(0, 1)
    query = torch.cat([absorbed, query[..., HEAD:]], -1)
    cache[:, 0] = torch.cat(key, -1)
    scores = torch.softmax(torch.bmm(query, cache.transpose(1, 2)), -1)
    seen = torch.bmm(scores, cache[..., :LATENT])
    seen = torch.bmm(seen.transpose(0, 1), one["values"]).transpose(0, 1)
    return seen.reshape(count, HEADS * HEAD) @ one["output"].t()


def experts(one: Weights, rows: Any, ends: Any) -> Any:
    """Return what the chosen experts and the shared one make of the rows."""
    count = rows.shape[0]
    hidden = norm(rows, one["norms"][3])
    share, chosen = torch.topk(torch.sigmoid(hidden @ one["router"].t()), CHOSEN)
    sorted_, order = torch.sort(chosen.flatten())
    offsets = torch.searchsorted(sorted_, ends).int()
    inner = torch._grouped_mm(hidden[order // CHOSEN], one["up"], offs=offsets)
    inner = functional.silu(inner[:, :WIDTH]) * inner[:, WIDTH:]
    mixed = torch._grouped_mm(inner, one["down"], offs=offsets)
    back = torch.empty_like(mixed)
    back[order] = mixed
    shared = hidden @ one["shared_up"].t()
    shared = (functional.silu(shared[:, :WIDTH]) * shared[:, WIDTH:]) @ one["shared_down"].t()
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
