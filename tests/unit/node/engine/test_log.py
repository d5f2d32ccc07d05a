from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from vllm_ansible.node.engine.log import (
    attention,
    figures,
    last_phase,
    lines,
    news,
    phase_of,
    spans,
    tail,
)

# A whole start of vLLM 0.32.0 on CPU, as it was logged.
HEALTHY = Path(__file__).parents[2] / "record/diagnosis/data/healthy-vllm-cpu.log"
ORDER = ["starting", "connecting ranks", "loading", "loading shards", "profiling"]
ORDER += ["warming up", "starting the server", "listening"]


def test_a_real_start_goes_through_its_phases_in_order() -> None:
    named = [phase.name for line in lines(HEALTHY.read_text()) if (phase := phase_of(line))]
    assert [first for first, second in pairwise([*named, ""]) if first != second] == ORDER


def test_the_newest_phase_of_a_whole_start_is_that_it_listens() -> None:
    assert last_phase(HEALTHY.read_text()) == ("listening", 0, 0)


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("Loading safetensors checkpoint shards:  25% Completed | 2/8 [00:01<00:03]", (2, 8)),
        ("Loading pt checkpoint shards: 100% Completed | 5/5 [00:01<00:00]", (5, 5)),
        ("Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|##  | 14/35", (14, 35)),
        ("DeepGEMM warmup:  25%|##5       | 3/12 [00:02<00:06,  1.5it/s]", (3, 12)),
        ("JIT kernel warmup (40 compile keys):  50%|#####     | 4/8 [00:02<00:02]", (4, 8)),
        ("Compiling CuTeDSL kernels:  50%|#####     | 1/2 [00:02<00:02,  2.0s/it]", (1, 2)),
        ("Capturing CUDA graph shapes:   0%|          | 0/35 [00:00<?, ?it/s]", (0, 35)),
    ],
)
def test_what_the_engine_counts_is_counted(line: str, phase: tuple[int, int]) -> None:
    found = phase_of(line)
    assert found is not None and (found.done, found.total) == phase


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (
            "INFO Waiting for creating a placement group of specs for 10 seconds.",
            "waiting for Ray to place the ranks",
        ),
        ("INFO [worker.py:1] Connecting to existing Ray cluster at 10.0.0.1:20000", "connecting "),
        (
            "INFO [backends.py:550] Compiling a graph for dynamic shape takes 9 s",
            "compiling graphs",
        ),
        ("INFO [monitor.py:34] torch.compile takes 12.5 s in total", "compiling graphs"),
        ("INFO [monitor.py:40] Starting torch.compile", "compiling graphs"),
        ("INFO [monitor.py:62] torch.compile took 12.50 s in total", "profiling"),
        (
            "2026-11-23 10:00:00,123 - INFO - core.py:564 - flashinfer.jit: Building JIT module "
            "sampling; this can take several minutes on first use.",
            "compiling kernels",
        ),
        (
            "2026-11-23 10:00:00  [TileLang:tilelang.jit.kernel:INFO]: TileLang begins to compile "
            "kernel `main` with `out_idx=[-1]`",
            "compiling kernels",
        ),
        ("INFO [kernel_warmup.py:189] JIT kernel warmup finished in 3.20s.", "warming up"),
        (
            "INFO [core.py:403] init engine (profile, create kv cache, warmup model) took 9.10 s",
            "starting the server",
        ),
        ("INFO [gpu_model_runner.py:2653] Model loading took 2.9 GiB", "profiling"),
        ("INFO [kv_cache_utils.py:1087] GPU KV cache size: 1,024 tokens", "warming up"),
    ],
)
def test_what_the_engine_waits_for_is_named(line: str, name: str) -> None:
    found = phase_of(line)
    assert found is not None and found.name.startswith(name)


@pytest.mark.parametrize(
    "line",
    [
        "INFO [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds.",
        "INFO Waiting for creating a placement group of specs for 20 seconds.",
        "(autoscaler) Error: No available node types can fulfill resource request {'GPU': 1.0}",
        "INFO [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s",
    ],
)
def test_what_is_said_while_nothing_moves_is_no_news(line: str) -> None:
    assert news(f"{line}\n{line}\n") == 0
    assert news(f"{line}\nINFO Starting to load model /m\n") == 1


def test_every_other_line_is_news() -> None:
    assert news("") == 0
    assert news("shards: 1/3\rshards: 2/3\nloaded\n") == 3
    assert news(HEALTHY.read_text()) == len(lines(HEALTHY.read_text()))


def test_a_text_without_a_phase_has_none() -> None:
    assert last_phase("") is None
    assert last_phase("INFO [model.py:733] Resolved architecture: LlamaForCausalLM\n") is None


def test_each_state_of_a_progress_bar_is_a_line_of_its_own() -> None:
    text = "shards: 1/3\rshards: 2/3\rshards: 3/3\n\n\r\nloaded\n"
    assert lines(text) == ["shards: 1/3", "shards: 2/3", "shards: 3/3", "loaded"]


def test_a_tail_keeps_only_the_last_state_of_a_bar() -> None:
    bar = "\r".join(f"shards: {n}/9 [00:01, {n}.0it/s]" for n in range(1, 10))
    assert tail(f"begin\n{bar}\nend") == ["begin", "shards: 9/9 [00:01, 9.0it/s]", "end"]
    assert tail("a\nb\nc", count=2) == ["b", "c"]


@pytest.mark.parametrize(
    ("line", "used", "refused"),
    [
        (
            "(EngineCore pid=9) INFO 11-22 10:00:00 [cuda.py:507] Using FLASHMLA attention backend "
            "out of potential backends: ['FLASHMLA', 'TRITON_MLA'].",
            ["FLASHMLA"],
            [],
        ),
        (
            "INFO 11-22 [cuda.py:446] Using AttentionBackendEnum.FLASHINFER_MLA backend.",
            ["FLASHINFER_MLA"],
            [],
        ),
        ("INFO 11-22 [cpu.py:175] Using CPU_MLA backend.", ["CPU_MLA"], []),
        (
            "INFO 11-22 [cpu.py:178] Cannot use AttentionBackendEnum.FLASHMLA backend on CPU.",
            [],
            ["FLASHMLA"],
        ),
        ("INFO 11-22 [fp8.py:99] Using FLASHINFER_CUTLASS backend.", [], []),
        (
            "INFO 11-22 [cuda.py:540] Using backend AttentionBackendEnum.FLASH_ATTN for vit "
            "attention",
            [],
            [],
        ),
    ],
)
def test_the_attention_backend_that_was_chosen_is_read(
    line: str, used: list[str], refused: list[str]
) -> None:
    assert attention(f"{line}\n{line}\n") == {"used": used, "refused": refused}


def test_the_seconds_of_a_real_start_are_told_by_its_dates() -> None:
    text = HEALTHY.read_text()
    began = time.mktime(time.strptime("2026-11-20 10:39:40", "%Y-%m-%d %H:%M:%S"))
    found = spans(text, "starting", began, began + 100)
    # Its first rank connects at 10:40:31; dates tell seconds, so what is shorter takes none.
    assert found == {"starting": 51, "profiling": 1, "starting the server": 2, "listening": 46}


def test_a_start_of_new_years_eve_is_dated_by_the_year_that_is_past() -> None:
    until = time.mktime(time.strptime("2027-01-01 00:00:30", "%Y-%m-%d %H:%M:%S"))
    text = "INFO 12-31 23:59:50 [m.py:1] Starting to load model /m\nINFO 01-01 00:00:20 [m.py:1] "
    text += (
        "Model loading took 2.9 GiB\n2027-01-01 00:00:25,1 - flashinfer.jit: Building JIT module x"
    )
    found = spans(text, "starting", until - 50, until)
    assert found == {"starting": 10, "loading": 30, "profiling": 5, "compiling kernels": 5}


def test_a_later_look_goes_on_with_the_phase_of_the_one_before() -> None:
    assert spans("", "compiling kernels", 100, 101.5) == {"compiling kernels": 1.5}
    # A clock that was set, or a line of another day, moves nothing outside of what was looked at.
    line = "INFO 11-20 10:00:00 [m.py:1] Model loading took 2.9 GiB"
    assert spans(line, "loading", 2e9, 2e9 + 1) == {"profiling": 1}


def test_the_slowest_rank_says_how_long_loading_took() -> None:
    text = "(Worker_TP0) INFO Loading weights took 1.50 seconds\nLoading weights took 61.25 seconds"
    assert figures(text)["loading_seconds"] == 61.25
    assert figures(HEALTHY.read_text())["loading_seconds"] > 0
    assert "loading_seconds" not in figures("INFO Loading weights")
