"""The verb `vllm-ansible plan`: what it prints, its exit codes, its pictures, its speed."""

from __future__ import annotations

import json
import os
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from vllm_ansible.cli import main as cli
from vllm_ansible.plan.estimate.layouts.command import NO_LAYOUT, OK, REFUSED, main
from vllm_ansible.plan.estimate.layouts.hub import PROXIES

ROOT = Path(__file__).parents[5]
R1 = ROOT / "tests/data/public/configs/deepseek-ai--DeepSeek-R1_config.json"
SVG = "{http://www.w3.org/2000/svg}"


def test_a_plan_is_a_table_with_the_command_and_the_reasons(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([config, "2x8 H100-80", "--concurrency", "8"]) == OK
    told = capsys.readouterr().out
    assert "TP8 PP2: 16 of 16 devices" in told
    assert "vllm serve" in told
    assert "why not" in told
    assert "more with --all" in told


def test_every_example_of_the_help_is_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    examples = [line.partition("vllm-ansible plan ")[2] for line in told.splitlines()]
    examples = [one for one in examples if one and not one.startswith("[")]
    assert len(examples) >= 12
    prices = [{"name": "a", "machines": "1x8 H200", "dollars_per_hour": 1, "as_of": "2026-11-26"}]
    (tmp_path / "prices.yml").write_text(json.dumps(prices), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for example in examples:
        words = [
            str(R1) if word in ("org/name", "org/other", "config.json") else word
            for word in shlex.split(example)
        ]
        assert main(words) == OK, example
        assert capsys.readouterr().out, example


def test_all_other_layouts_are_shown_on_request(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([config, "2x8 H100-80", "--all"]) == OK
    told = capsys.readouterr().out
    assert "more with --all" not in told
    assert "2 x TP8 " in told


def test_a_document_holds_every_layout_and_rank(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([config, "2x8 H100-80", "--json", "--concurrency", "8"]) == OK
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    assert found["chosen"]["name"] == "TP8 PP2"
    assert len(found["ranks"]) == 16
    assert len(found["chosen"]["stages"]) == 2
    assert all(other["reason"] for other in found["others"])


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["2x8 H900"], REFUSED, "accelerator 'H900' is not known"),
        (["nonsense"], REFUSED, "cannot be read"),
        (["2x8 H200", "--concurrency", "0"], REFUSED, "concurrency is 0"),
        (["2x8 H200", "--concurrency", "-4"], REFUSED, "concurrency is -4"),
        (["2x8 H200", "--tensor", "0"], REFUSED, "--tensor is 0"),
        (["2x8 H200", "--pipeline", "2"], REFUSED, "without its tensor size"),
        (["2x8 H200", "--measured", "-1"], REFUSED, "must be above 0"),
        (["2x8 H200", "--vllm", "new"], REFUSED, "is no version of vLLM"),
        (["2x8 H200", "--accelerators", "/nowhere"], REFUSED, "cannot be read"),
        (["2x8 H200", "--svg", "/nowhere/plan.svg"], REFUSED, "cannot be written"),
        (["2x8 H200", "--offload-gib", "-1"], REFUSED, "offload_gib is -1, and must"),
        (["2x8 H200", "--offload-gib", "5"], NO_LAYOUT, "cannot run on 2x8 H200: 5 GiB of weights"),
        (["1x1 H200"], NO_LAYOUT, "1x1 H200: the weights alone are 628.8 GiB a rank of 139.8"),
        (["3x1 H200", "--tensor", "4"], NO_LAYOUT, "TP4 needs 4 devices, and there are 3"),
    ],
)
def test_a_refusal_is_one_sentence_and_a_status(
    config: str, words: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([config, *words]) == status
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert told.err.count("\n") == 1
    assert main([config, *words, "--json"]) == status
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_model_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["./nowhere", "2x8 H200"]) == REFUSED
    assert "there is no model at ./nowhere" in capsys.readouterr().err


def test_a_hub_out_of_reach_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["org/name", "2x8 H200"]) == REFUSED
    assert "127.0.0.1 cannot be reached" in capsys.readouterr().err


def test_the_command_knows_the_verb(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", config, "2x8 H200"]) == OK
    assert "2 x TP8" in capsys.readouterr().out


def test_own_accelerators_come_from_a_file(
    config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.yml"
    own.write_text("big: {like: H200, memory_bytes: 300000000000}\n", encoding="utf-8")
    assert main([config, "1x4 big", "--accelerators", str(own)]) == OK
    assert "1x4 big" in capsys.readouterr().out


def test_the_picture_shows_every_device_and_its_memory(config: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    assert main([config, "4x4 H100-80", "--svg", str(path), "--concurrency", "8"]) == OK
    page = ElementTree.fromstring(path.read_text(encoding="utf-8"))  # noqa: S314 our own
    titles = [one.text or "" for one in page.iter(f"{SVG}title")]
    words = [one.text for one in page.iter(f"{SVG}text")]
    assert len(titles) + words.count("free") == 16
    assert titles[0].startswith("rank 0, stage 0: weights ")
    assert "node-4" in words


def test_a_picture_of_many_nodes_stays_small(config: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    assert main([config, "128x8 H100-80", "--svg", str(path)]) == OK
    assert "and 96 nodes more, filled in the same way" in path.read_text(encoding="utf-8")


# What a bare start of the standard modules that any such command needs costs, with nothing else
# running on the machine on which the limits were set.
START, SECONDS = "import argparse, dataclasses, json, pathlib, re, typing", 0.031


# In make soak, on a quiet machine: beside other work it measures the other work.
@pytest.mark.soak
@pytest.mark.parametrize(("line", "seconds"), [("4x8 H100-80", 0.100), ("128x8 H100-80", 1.0)])
def test_a_plan_takes_no_longer_than_it_may(
    config: str, tmp_path: Path, line: str, seconds: float
) -> None:
    """Judge the processor time of a whole process, import included, less a bare interpreter's.

    A machine that is slow, or does other work, is slower in the measure of a start beside it.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path / "compiled")
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def spent(*words: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, *words], check=True, env=environment, stdout=subprocess.DEVNULL
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    plan = ("-m", "vllm_ansible.console", "plan", config, line)
    spent(*plan)
    rounds = [(spent("-c", "pass"), spent("-c", START), spent(*plan)) for _ in range(15)]
    bare, start, best = (min(times) for times in zip(*rounds, strict=True))
    slower = max(1.0, (start - bare) / SECONDS)
    assert best - bare < seconds * slower
