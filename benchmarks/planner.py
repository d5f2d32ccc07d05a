#!/usr/bin/env python3
"""The layout planner beside NVIDIA's aiconfigurator: the same questions, in the same run.

python3 -m venv peer && peer/bin/pip install aiconfigurator==0.12.0
.venv/bin/python benchmarks/planner.py --peer peer/bin/aiconfigurator --model config.json

Every time is that of a whole process. The model is DeepSeek-R1, whose throughput is public.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

AIM_RATIO = 100.0
PEER_MISSING, SLOWER = 2, 1
INPUT, OUTPUT = 1024, 512
PEER_SECONDS = 600


@dataclass(frozen=True)
class Question:
    """Machines as each of both names them."""

    line: str
    system: str
    devices: int


QUESTIONS = (
    Question("2x8 H100-80", "h100_sxm", 16),
    Question("1x8 H200", "h200_sxm", 8),
    Question("4x8 H200", "h200_sxm", 32),
)
# Output tokens per second that KempnerInstitute/distributed-inference-vllm prints for vLLM
# 0.8.5.post1, eager: machines, tensor-parallel ranks, requests at once, measured.
MEASURED = (
    ("4x4 H100-80 @ 4x400Gb", "h100_sxm", 16, 8, 76.0),
    ("4x4 H100-80 @ 4x400Gb", "h100_sxm", 16, 112, 1030.0),
    ("2x4 H200 @ 4x400Gb", "h200_sxm", 8, 96, 690.0),
    ("2x4 H200 @ 4x400Gb", "h200_sxm", 8, 144, 1022.0),
)


def main() -> int:
    """Print both answers, both times and their ratio; 0 when the aim is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default=shutil.which("aiconfigurator") or "")
    parser.add_argument("--model", default="deepseek-ai/DeepSeek-R1", help="config.json or name")
    parser.add_argument("--runs", type=int, default=5, help="of the planner; the peer runs once")
    options = parser.parse_args()
    if not options.peer or shutil.which(options.peer) is None:
        sys.stderr.write(
            "benchmark: aiconfigurator is not installed: pip install aiconfigurator==0.12.0 in an "
            "environment of its own, and name it with --peer\n"
        )
        return PEER_MISSING
    with tempfile.TemporaryDirectory() as directory:
        peer_model = _peer_model(options.model, Path(directory))
        worst = _layouts(options, peer_model)
        _rates(options, peer_model)
    print(f"least ratio {worst:,.0f} (aim: at least {AIM_RATIO:.0f})")
    return 0 if worst >= AIM_RATIO else SLOWER


def _layouts(options: argparse.Namespace, peer_model: str) -> float:
    """Ask both for the best layout and print what they say; return the least ratio of times."""
    print("| machines | requests | aiconfigurator | s | planner | s | times as fast |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for one in QUESTIONS:
        took, text = _timed(
            [
                *(options.peer, "cli", "default", "--no-color", "--model-path", peer_model),
                *("--total-gpus", str(one.devices), "--system", one.system, "--backend", "vllm"),
                *("--serving-mode", "agg", "--isl", str(INPUT), "--osl", str(OUTPUT)),
                *("--ttft", "100000", "--tpot", "1000", "--top-n", "1"),
            ]
        )
        row = next(
            ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()
             if re.match(r"\|\s+1\s+\|", line)),
            [],
        )  # fmt: skip
        theirs = f"{row[12]}, {float(row[2]) * one.devices:,.0f} tokens/s" if row else "no layout"
        clients = int(row[7].split()[0]) if row else 64
        runs = [_plan(options.model, one.line, clients) for _ in range(options.runs)]
        mine, answer = min(run[0] for run in runs), runs[0][1]
        ratios.append(took / mine)
        print(
            f"| {one.line} | {clients} | {theirs} | {took:.1f} | {_said(answer)} | {mine:.3f} | "
            f"{took / mine:,.0f} |"
        )
    return min(ratios)


def _rates(options: argparse.Namespace, peer_model: str) -> None:
    """Print what both predict for deployments whose throughput is public."""
    print("\n| deployment | requests | measured | aiconfigurator | planner |")
    print("|---|---|---|---|---|")
    for line, system, tensor, clients, measured in MEASURED:
        _, text = _timed(
            [
                *(options.peer, "cli", "estimate", "--no-color", "--model-path", peer_model),
                *("--system", system, "--backend", "vllm", "--isl", "32", "--osl", "1024"),
                *("--tp-size", str(tensor), "--moe-tp-size", str(tensor)),
                *("--batch-size", str(clients)),
            ]
        )
        found = re.search(r"tokens/s:\s+([\d,.]+)", text)
        theirs = float(found[1].replace(",", "")) if found else None
        _, answer = _plan(
            *(options.model, line, clients, "--tensor", str(tensor), "--eager"),
            *("--vllm", "0.8.5", "--input-tokens", "32", "--output-tokens", "1024"),
        )
        band = answer["chosen"]["load"]["output_tokens_per_second"] if answer.get("ok") else None
        print(
            f"| R1 TP{tensor} on {line.split(' @')[0]}, eager | {clients} | {measured:,.0f} | "
            f"{_beside(theirs, measured)} | "
            + (
                f"{_beside(band['middle'], measured)}, {band['low']:,.0f} to {band['high']:,.0f} |"
                if band
                else f"{answer.get('refused', 'no answer')} |"
            )
        )


def _plan(model: str, line: str, clients: int, *more: str) -> tuple[float, dict[str, Any]]:
    words = [sys.executable, "-m", "vllm_ansible.console", "plan", model, line, "--json"]
    words += ["--concurrency", str(clients)]
    if "--input-tokens" not in more:
        words += ["--input-tokens", str(INPUT), "--output-tokens", str(OUTPUT)]
    took, text = _timed([*words, *more])
    answer: dict[str, Any] = json.loads(text)
    return took, answer


def _said(answer: dict[str, Any]) -> str:
    if not answer.get("ok"):
        return str(answer.get("refused"))
    chosen = answer["chosen"]
    return f"{chosen['name']}, {chosen['output_tokens_per_second']:,.0f} tokens/s"


def _beside(value: float | None, measured: float) -> str:
    return "no answer" if value is None else f"{value:,.0f} (x{value / measured:.2f})"


def _timed(words: Sequence[str]) -> tuple[float, str]:
    start = time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, timeout=PEER_SECONDS, check=False)
    return time.perf_counter() - start, done.stdout + ("" if done.stdout else done.stderr)


def _peer_model(model: str, directory: Path) -> str:
    """Return the model as the peer takes it: a name, or a directory with a config.json."""
    path = Path(model)
    if not path.is_file():
        return model
    shutil.copy(path, directory / "config.json")
    return str(directory)


if __name__ == "__main__":
    sys.exit(main())
