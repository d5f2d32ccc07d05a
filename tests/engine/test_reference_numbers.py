"""What transformers computes under the engine's own Python is what was recorded of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vllm_ansible.computation.distance import distance
from vllm_ansible.node.engine import reference
from vllm_ansible.node.environment import build as environment
from vllm_ansible.node.weights.models import Model

ROOT = Path(__file__).parents[2]
RECORDED: dict[str, Any] = json.loads((ROOT / "tests/data/smollm2-computation.json").read_text())
SCRIPT = (ROOT / "roles/vllm/files/reference_numbers.py").read_text()


def test_transformers_computes_what_sound_engines_compute_and_no_damaged_one(
    engine: Path, packaged_dir: Path, tmp_path: Path
) -> None:
    model = Model("package", "smollm2-135m-instruct")
    python, place = str(environment.python(engine)), Path(model.place(str(packaged_dir)))
    told = reference.compute(python, SCRIPT, str(place))
    assert distance(RECORDED["f32"], told["prompts"]).mean < 0.001
    assert all(distance(told["prompts"], RECORDED[one]).mean < 0.05 for one in ("bf16", "tp3"))
    assert all(
        distance(told["prompts"], RECORDED[one]).mean > 0.2
        for one in ("swapped", "scaled", "tuneda", "tunedb")
    )
    # A layer that no file holds would be random numbers.
    config = json.loads((place / "config.json").read_text())
    config["num_hidden_layers"] += 1
    for path in place.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    told = reference.compute(python, SCRIPT, str(tmp_path))
    assert told["skipped"].startswith("transformers lacks "), told
    assert "model.layers.30." in told["skipped"]


def test_a_model_that_transformers_cannot_read_is_skipped_with_its_reason(
    engine: Path, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "of-a-later-release"}))
    told = reference.compute(str(environment.python(engine)), SCRIPT, str(tmp_path))
    assert told["skipped"].startswith("transformers cannot read the model: ")
