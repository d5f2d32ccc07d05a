"""Weights and KV tokens set beside what public deployments printed."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from vllm_ansible.plan.estimate.memory.blocks import capacity
from vllm_ansible.plan.estimate.memory.budget import budget, default_block_size
from vllm_ansible.plan.estimate.memory.group import Request
from vllm_ansible.plan.estimate.memory.weights import weights

from .deployments import (
    GIB,
    VENDORS,
    Row,
    accelerator_of,
    kernels_of,
    memory_of,
    model_of,
    rows,
)


def missing(row: Row, *wanted: tuple[str, Callable[[Row], object]]) -> str:
    return ", ".join(name for name, value in wanted if value(row) in (None, ""))


def told(title: str, used: int, skipped: list[str]) -> None:
    print(f"\n{title}: {used} rows used, {len(skipped)} skipped")
    print("\n".join(f"  skipped {one}" for one in skipped))


def test_weights_of_public_deployments_are_met() -> None:
    apart: dict[str, float] = {}
    skipped = []
    for row in rows():
        lacks = missing(
            row,
            ("weights", lambda row: row.number("weights_gib_per_gpu")),
            ("tp", lambda row: row.number("tp")),
            ("configuration", model_of),
        )
        if row.text["source"] in VENDORS:
            lacks = VENDORS[row.text["source"]]
        if lacks or row.text["weights_gib_per_gpu"].startswith("~"):
            skipped.append(f"{row.name}: no {lacks or 'exact figure'}")
            continue
        model, printed = model_of(row), row.number("weights_gib_per_gpu")
        assert model is not None and printed is not None
        # A pipeline's printed rank is the driver's, which holds the first stage.
        derived = weights(model, row.split(), row.version, kernels_of(row))[0] / GIB
        apart[f"{row.name} {row.version}: {derived:.3f} for {printed}"] = derived / printed - 1
    told("weights", len(apart), skipped)
    for name, value in sorted(apart.items(), key=lambda item: -abs(item[1]))[:12]:
        print(f"  {100 * value:+.2f} % {name}")
    sizes = [abs(value) for value in apart.values()]
    print(f"  median {100 * median(sizes):.3f} %, worst {100 * max(sizes):.3f} %")
    assert len(apart) >= 100
    assert median(sizes) <= 0.0025
    assert max(sizes) <= 0.02


def test_kv_tokens_of_public_deployments_are_inside_the_band() -> None:
    inside, outside, skipped = [], [], []
    for row in rows():
        lacks = missing(
            row,
            ("KV tokens", lambda row: row.number("kv_cache_tokens")),
            ("tp", lambda row: row.number("tp")),
            ("gpu_mem_util", lambda row: row.number("gpu_mem_util")),
            ("vllm_version", lambda row: row.version),
            ("known accelerator", memory_of),
            ("configuration", model_of),
        )
        if lacks:
            skipped.append(f"{row.name}: no {lacks}")
            continue
        model, memory, utilization = model_of(row), memory_of(row), row.number("gpu_mem_util")
        tokens, device = row.whole("kv_cache_tokens"), accelerator_of(row)
        assert model is not None and memory is not None and tokens is not None
        found = budget(
            model,
            row.split(),
            memory,
            utilization=utilization,
            max_model_len=row.whole("max_model_len"),
            max_num_batched_tokens=row.whole("max_num_batched_tokens"),
            max_num_seqs=row.whole("max_num_seqs"),
            kv_cache_dtype=row.text["kv_cache_dtype"] or "auto",
            eager=row.text["enforce_eager"] == "yes",
            engine_version=row.version,
            accelerator_kind=kernels_of(row).kind,
            device=device.name if device else "",
            capability=kernels_of(row).capability,
            prefix_caching=row.prefix_caching,
        )
        low, mid, high = found.kv_tokens
        line = f"{row.name} {row.version}: {tokens} in {low} .. {mid} .. {high}"
        (inside if low <= tokens <= high else outside).append((mid / tokens - 1, line))
    told("KV tokens", len(inside) + len(outside), skipped)
    for apart, line in outside:
        print(f"  outside, {100 * apart:+.1f} %: {line}")
    used = sorted(abs(apart) for apart, _ in inside + outside)
    print(f"  likely figure: median {100 * median(used):.2f} %, worst {100 * used[-1]:.2f} % apart")
    assert len(used) >= 90
    assert len(inside) >= 0.95 * len(used)


def test_printed_cache_bytes_hold_the_printed_tokens() -> None:
    used, skipped = {}, []
    for row in rows():
        lacks = missing(
            row,
            ("KV tokens", lambda row: row.number("kv_cache_tokens")),
            ("KV bytes", lambda row: row.number("available_kv_gib")),
            ("tp", lambda row: row.number("tp")),
            ("max_model_len", lambda row: row.number("max_model_len")),
            ("configuration", model_of),
        )
        if lacks or row.text["kv_cache_tokens"].startswith("~"):
            skipped.append(f"{row.name}: no {lacks or 'exact figure'}")
            continue
        found, size, split = model_of(row), row.number("available_kv_gib"), row.split()
        tokens, length = row.whole("kv_cache_tokens"), row.whole("max_model_len")
        assert found is not None and size is not None and tokens is not None and length is not None
        request = Request(
            length,
            row.whole("max_num_batched_tokens") or 8192,
            default_block_size(found),
            row.prefix_caching,
        )
        low, high = (
            capacity(
                found,
                split,
                (size_ * GIB,) * split.pipeline,
                request,
                row.text["kv_cache_dtype"] or "auto",
                row.version,
            ).tokens
            for size_ in (size - 0.0051, size + 0.0051)
        )
        used[row.name] = (low, tokens, high)
    told("tokens of printed bytes", len(used), skipped)
    outside = {name: three for name, three in used.items() if not three[0] <= three[1] <= three[2]}
    assert len(used) >= 90
    assert outside == {}
