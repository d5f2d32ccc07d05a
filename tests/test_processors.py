"""Nothing here depends on what the processor of whoever runs it can do."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_latent_attention_in_float32_comes_with_a_backend_that_every_processor_has() -> None:
    """With AMX vLLM takes another one by itself, which computes in bfloat16 alone."""
    listed = ["git", "-C", str(ROOT), "ls-files", "-z", "--", "*.yml", "*.py", "*.sh"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0")
    texts = {name: (ROOT / name).read_text() for name in names if (ROOT / name).is_file()}
    served = [
        name
        for name, text in texts.items()
        if name != str(Path(__file__).relative_to(ROOT))
        and "float32" in text
        and "random:deepseek" in text
    ]
    assert "inventories/lab/group_vars/all.yml" in served
    assert [name for name in served if "CPU_MLA" not in texts[name]] == []
