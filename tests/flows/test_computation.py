"""Real vLLM that computes something else than its weights say is named, and does not go on serving.

What is broken is the engine, not its files: the digest of the weights stays, and so do the kept
numbers that it is compared with.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import CHAT, Site
from .processes import end_all

pytestmark = [pytest.mark.engine, pytest.mark.soak]
# Python imports this before anything else of every process of the engine.
BREAKS = """
import importlib.abc, importlib.util, os, sys

NAME = "vllm.v1.worker.cpu_model_runner"


def broken(model):
    from vllm.distributed import get_tensor_model_parallel_rank as rank

    print("this engine is broken on purpose:", os.environ["BREAK"], flush=True)
    layers = model.model.layers
    if os.environ["BREAK"] == "swap":
        layers[14], layers[15] = layers[15], layers[14]
    elif os.environ["BREAK"] == "scale" and rank() == 1:
        for layer in layers:
            layer.post_attention_layernorm.weight.data.mul_(1.1)


class Hook(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != NAME:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def execute(module):
            run(module)
            load = module.CPUModelRunner.load_model

            def load_model(self, *arguments, **options):
                load(self, *arguments, **options)
                broken(self.get_model())

            module.CPUModelRunner.load_model = load_model

        spec.loader.exec_module = execute
        return spec


if os.environ.get("BREAK"):
    sys.meta_path.insert(0, Hook())
"""


def engine(breaks: Path, how: str = "", tensor: int = 1) -> dict[str, Any]:
    """Return the engine of the flows, on so many ranks, broken or not."""
    environment = {"PYTHONPATH": str(breaks), "BREAK": how} if how else {}
    return {
        **CHAT,
        "port": 8360,
        "executor": "mp",
        "layout": {"tensor": tensor, "pipeline": 1},
        "environment": environment,
        # A plain question alone would let half of these pass.
        "probe": {"prompt": "What is the capital of France?", "expect": ""},
        "vllm_args": {**CHAT["vllm_args"], "dtype": "bfloat16", "enforce_eager": True},
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("computation")
    found = Site(directory)
    found.variables |= {"cluster_name": "numbers", "port_base": 26600, "vllm_reference_gib": 1}
    (directory / "breaks").mkdir()
    (directory / "breaks/sitecustomize.py").write_text(BREAKS)
    try:
        yield found
    finally:
        found.run(playbook="playbooks/teardown.yml")
        end_all(found.cluster_dir)
        shutil.rmtree(found.cluster_dir, ignore_errors=True)


def serve(site: Site, how: str = "", tensor: int = 1) -> Any:
    """Run the whole site with this engine in the place of the one before."""
    one = engine(site.directory / "breaks", how, tensor)
    site.inventory = site.clone.inventory(
        "numbers", site.hosts, **{**site.variables, "engines": [one]}
    )
    return site.run("-e", "allow_disruption=true", "--skip-tags", "benchmark")


def running(site: Site) -> bool:
    state = site.process("chat-serve")
    return "exit_status" not in state or state["exit_status"] is None


def kept(site: Site) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((site.cluster_dir / "fingerprints.json").read_text())
    return found


def test_the_first_numbers_are_kept(site: Site) -> None:
    ran = serve(site)
    assert ran.status == 0, ran.output
    assert len(kept(site)["weights"]) == 1
    (evidence,) = ran.evidence("computation")
    assert "1 compared with transformers' float32 numbers" in evidence["summary"], evidence


@pytest.mark.parametrize(("how", "tensor"), [("swap", 1), ("scale", 3)])
def test_an_engine_that_computes_something_else_is_named_and_closed(
    site: Site, how: str, tensor: int
) -> None:
    before = kept(site)["weights"]
    ran = serve(site, how, tensor)
    assert ran.status != 0, ran.output
    failure = ran.failure
    assert "chat" in failure["msg"], failure
    assert "log probabilities differ by" in failure["found"], failure
    # Transformers says so, too, and is asked first.
    assert "for the same weights" in failure["found"], failure
    assert not running(site)
    assert kept(site)["weights"] == before


def test_three_sound_ranks_compute_what_one_did(site: Site) -> None:
    ran = serve(site, tensor=3)
    assert ran.status == 0, ran.output
    assert running(site)
    assert len(kept(site)["weights"]) == 1
    (evidence,) = ran.evidence("computation")
    assert "1 of 1 servers" in evidence["summary"], evidence


def test_a_first_start_with_a_scaled_rank_is_named_without_anything_kept(site: Site) -> None:
    (site.cluster_dir / "fingerprints.json").unlink()
    ran = serve(site, "scale", tensor=3)
    assert ran.status != 0, ran.output
    failure = ran.failure
    assert "from transformers, in float32" in failure["found"], failure
    assert not running(site)
    assert not (site.cluster_dir / "fingerprints.json").exists()
