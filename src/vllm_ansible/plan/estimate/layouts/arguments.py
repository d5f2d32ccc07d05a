"""The exact arguments of `vllm serve` for a layout, its environment, and what each node runs."""

from __future__ import annotations

import json

from vllm_ansible.frozen import frozen
from vllm_ansible.plan.estimate.layouts.evaluate import default_step
from vllm_ansible.plan.estimate.layouts.limits import HANGS_ACROSS_NODES, affected
from vllm_ansible.plan.estimate.layouts.request import Request
from vllm_ansible.plan.estimate.layouts.verdict import Verdict
from vllm_ansible.plan.estimate.throughput.estimate import version

STEP = 1024
RPC_PORT = 13345


@frozen
class Start:
    """How one engine is started: arguments of `vllm serve MODEL` by node, and the environment."""

    arguments: tuple[str, ...]
    environment: dict[str, str]
    followers: tuple[tuple[str, ...], ...] = ()


def start(verdict: Verdict, request: Request) -> Start:
    """Return how an engine of the chosen layout is started.

    The first node runs `arguments`; where data-parallel ranks lie on other nodes, each of those
    runs one of `followers`. Tensor and pipeline ranks on other nodes are reached through Ray.
    """
    one = verdict.candidate
    words = ["--tensor-parallel-size", str(one.tensor)]
    if one.pipeline > 1:
        words += ["--pipeline-parallel-size", str(one.pipeline)]
    if one.expert:
        words += ["--enable-expert-parallel"]
    length = max_model_len(verdict, request)
    if length:
        words += ["--max-model-len", str(length)]
    if request.utilization is not None:
        words += ["--gpu-memory-utilization", f"{request.utilization:g}"]
    if request.kv_cache_dtype != "auto":
        words += ["--kv-cache-dtype", request.kv_cache_dtype]
    seats = min(
        default_step(node.accelerator, request.engine_version, request.longest)[1]
        for node in request.machines.nodes
    )
    share = -(-request.concurrency // (one.replicas * one.data))
    if share > seats:
        words += ["--max-num-seqs", str(share)]
    if request.batched_tokens:
        words += ["--max-num-batched-tokens", str(request.batched_tokens)]
    words += ["--language-model-only"] if request.text_only else []
    words += ["--mm-encoder-tp-mode", "data"] if request.encoder_data else []
    words += ["--no-enable-prefix-caching"] if request.prefix_caching is False else []
    if request.lora:
        words += ["--enable-lora", "--max-loras", str(request.lora.number)]
        words += ["--max-lora-rank", str(request.lora.rank)]
    if request.speculative:
        method, name = request.draft or ("mtp", "")
        proposed: dict[str, object] = {"method": method}
        proposed |= {"model": name} if name else {}
        proposed["num_speculative_tokens"] = request.speculative
        words += ["--speculative-config", json.dumps(proposed, separators=(",", ":"))]
    if request.eager:
        words += ["--enforce-eager"]
    if verdict.nodes > 1 and affected(version(request.engine_version), HANGS_ACROSS_NODES):
        words += ["--disable-custom-all-reduce"]
    followers: tuple[tuple[str, ...], ...] = ()
    if one.data > 1:
        words += ["--data-parallel-size", str(one.data)]
    if one.data > 1 and verdict.nodes > 1:
        local = request.machines.nodes[0].devices // one.tensor
        address = ["--data-parallel-address", request.machines.nodes[0].name]
        address += ["--data-parallel-rpc-port", str(RPC_PORT)]
        followers = tuple(
            # The last node may have fewer ranks than the others.
            (*words, "--data-parallel-size-local", str(min(local, one.data - rank)), *address,
             "--headless", "--data-parallel-start-rank", str(rank))
            for rank in range(local, one.data, local)
        )  # fmt: skip
        words += ["--data-parallel-size-local", str(local), *address]
    elif verdict.nodes > 1:
        words += ["--distributed-executor-backend", "ray"]
    return Start(tuple(words), environment(verdict), followers)


def environment(verdict: Verdict) -> dict[str, str]:
    """Return the variables a layout needs beside its arguments."""
    if verdict.layer_partition is None:
        return {}
    return {"VLLM_PP_LAYER_PARTITION": ",".join(str(one) for one in verdict.layer_partition)}


def max_model_len(verdict: Verdict, request: Request) -> int | None:
    """Return the context to ask for, None where the model's own surely fits.

    vLLM refuses to start when its cache does not hold one request of full length.
    """
    if request.context:
        return request.context
    surely = verdict.budget.kv_tokens[0] if verdict.budget else 0
    if surely >= request.model.max_context:
        return None
    return max(request.longest, surely // STEP * STEP)
