"""vLLM's router gets the engines' key by its environment, and by nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

START = Path(__file__).parents[3] / "roles/router/files/pairs/start.py"


def test_the_key_is_in_the_environment_alone(tmp_path: Path) -> None:
    key = tmp_path / "api_key"
    key.write_text("sk-of-engines\n")
    program = "import os, sys; print(os.environ['OPENAI_API_KEY'], sys.argv[1:])"
    words = [sys.executable, START, key, sys.executable, "-c", program, "--port", "1"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert ran.stdout == "sk-of-engines ['--port', '1']\n"


def test_without_the_key_it_does_not_start(tmp_path: Path) -> None:
    words = [sys.executable, START, tmp_path / "none", sys.executable, "-c", "print('started')"]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode != 0
    assert ran.stdout == ""
