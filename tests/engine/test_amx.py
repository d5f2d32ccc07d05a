"""Latent attention in float32 on a processor with AMX, of which torch alone is asked."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., subprocess.CompletedProcess[str]]

GENERATE = """
import sys, torch
torch.cpu._is_amx_tile_supported = lambda: True
from vllm import LLM, SamplingParams
engine = LLM(sys.argv[1], dtype="float32", attention_backend=sys.argv[2] or None,
             enforce_eager=True, max_model_len=128, max_num_seqs=2, max_num_batched_tokens=128,
             kv_cache_memory_bytes=1 << 26)
wanted = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
print("tokens", list(engine.generate(["one node leads"], wanted)[0].outputs[0].token_ids))
"""
# Here and not in a process of its own, which would see this processor as it is.
ALONE = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


# Half a minute of processor time for what the lock alone can change. In every run the flows serve
# with this backend, and test_arguments.py has vLLM asked for its types as with AMX.
@pytest.mark.engine
@pytest.mark.soak
def test_the_backend_that_our_inventories_name_computes_there(
    run_engine_python: Run, models_dir: Callable[[str], Path]
) -> None:
    model = str(models_dir("deepseek-v3"))
    result = run_engine_python(GENERATE, model, "CPU_MLA", environment=ALONE)
    assert "Using CPU_MLA backend" in result.stdout, result.stderr[-2000:]
    assert re.search(r"^tokens \[\d+(, \d+){7}\]$", result.stdout, re.MULTILINE), result.stderr


@pytest.mark.engine
@pytest.mark.soak
def test_the_one_that_vllm_takes_by_itself_does_not(
    run_engine_python: Run, models_dir: Callable[[str], Path]
) -> None:
    """Once it does, neither the name of the backend nor the refusal of float32 is needed."""
    result = run_engine_python(GENERATE, str(models_dir("deepseek-v3")), "", environment=ALONE)
    assert result.returncode != 0
    assert "RuntimeError: expect weight to be bfloat16" in result.stdout + result.stderr
