"""The script alone starts what the product starts: word by word, by a real shell."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.plan.estimate.layouts.conftest import R1
from vllm_ansible.inventory.readable import readable
from vllm_ansible.plan.environment import KEPT_ON_THEIR_HOST
from vllm_ansible.plan.processes import wanted_processes
from vllm_ansible.slurm.endpoint import published
from vllm_ansible.slurm.script import submit_command
from vllm_ansible.slurm.standalone import directives, standalone
from vllm_ansible.slurm.wanted import Wanted, wanted

from .layouts import LAYOUTS, inventory, layout

every_layout = pytest.mark.parametrize("name", LAYOUTS)
JOB = "# ---- The job ----\n"
CORES = len(os.sched_getaffinity(0))
# In place of Slurm's steps: what would be started, a word a line, ended by NUL.
STAND_IN = """
start() { printf '%s\\0' "$1" "$2" "${@:3}" END >>"$STARTED"; }
secret() { :; }
"""


def facts(asked: Wanted, directory: str) -> dict[str, dict[str, Any]]:
    """Return site_host of each node, as the product would have found it on the same nodes."""
    return {
        name: {
            "name": name,
            "accelerator": asked.accelerator,
            "accelerator_count": asked.accelerator_count,
            "address": f"10.0.0.{slot + 1}",
            "interface": f"ib{slot}",
            "cluster_dir": f"{directory}/node-{slot}",
            "run_dir": "/tmp/vllm-12",  # noqa: S108  a name, never made
            "cores": CORES,
            "site_environment": {"PATH": os.environ["PATH"]},
        }
        for slot, name in enumerate(asked.hosts)
    }


def begun(asked: Wanted, tmp_path: Path) -> list[list[str]]:
    """Run what the script says before its end, with stand-ins for Slurm; return what it starts."""
    text = standalone(asked).replace(asked.settings.directory, str(tmp_path / "r1"))
    programs = tmp_path / "bin"
    programs.mkdir(exist_ok=True)
    for program, printed in (
        ("scontrol", "printf 'gpu%s\\n' 1 2 3 4"),
        ("module", ":"),
        ("mamba", ":"),
    ):
        (programs / program).write_text(f"#!/bin/sh\n{printed}\n")
        (programs / program).chmod(0o755)
    head, _, job = text.partition(JOB)
    # The starts alone: what stands around them waits for real nodes.
    functions = [f"{part.function}" for one in _starts(asked) for part in one.starts]
    starts = [line for line in job.splitlines() if any(f"{one} " in line for one in functions)]
    lines = [
        "ADDRESS=(10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4) INTERFACE=(ib0 ib1 ib2 ib3)",
        "KEY_FILE=/dev/null STAY=",
        STAND_IN,
        *starts,
    ]
    done = subprocess.run(
        ["bash"],
        input=head.replace("vllm=$(command -v vllm)", "vllm=/scratch/me/venv/bin/vllm")
        + "\n".join(lines),
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "12",
            "SLURM_JOB_NODELIST": "gpu[1-4]",
            "STARTED": str(tmp_path / "started"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    words = (tmp_path / "started").read_text().split("\0")
    return [one.split("\0") for one in "\0".join(words).split("\0END\0") if one]


def _starts(asked: Wanted) -> Any:
    from vllm_ansible.slurm.processes import engine_starts

    return engine_starts(asked)


@every_layout
def test_the_script_starts_word_by_word_what_the_product_starts(name: str, tmp_path: Path) -> None:
    asked = layout(name)
    hosts = facts(asked, str(tmp_path / "r1" / "sbatch-12"))
    specs = wanted_processes(
        asked.plan,
        hosts,
        {host: {"directory": "/scratch/me/venv"} for host in hosts},
        dict.fromkeys(hosts, asked.models),
    )
    expected = {
        (spec.name, asked.hosts.index(spec.host)): (dict(spec.environment), list(spec.argv))
        for of_host in specs.values()
        for spec in of_host
    }
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    for environment, _ in expected.values():
        toolkit = ":/usr/local/cuda/bin" if "CUDA_VISIBLE_DEVICES" in environment else ""
        environment["PATH"] = f"/scratch/me/venv/bin:{path}{toolkit}"
    found = {}
    for process, slot, *words in begun(asked, tmp_path):
        count = next(place for place, text in enumerate(words) if text.startswith("/"))
        environment = dict(text.split("=", 1) for text in words[:count])
        found[process, int(slot)] = (environment, words[count:])
    assert found == expected


@every_layout
def test_heads_start_before_workers_and_those_before_servers(name: str, tmp_path: Path) -> None:
    started = begun(layout(name), tmp_path)
    order = [
        2 if "-serve" in process else int("--head" not in words) for process, _, *words in started
    ]
    assert order == sorted(order)


@every_layout
def test_shellcheck_has_nothing_to_say(name: str, tmp_path: Path) -> None:
    path = tmp_path / "script.sbatch"
    path.write_text(standalone(layout(name)))
    done = subprocess.run(["shellcheck", path], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", 0)


@every_layout
def test_programs_inside_are_python_of_three_nine(name: str) -> None:
    text = standalone(layout(name))
    programs = [one.partition("\nPYTHON\n")[0] for one in text.split("<<'PYTHON'\n")[1:]]
    assert len(programs) >= 4
    for program in programs:
        ast.parse(program, feature_version=(3, 9))


def test_the_same_inventory_gives_the_same_script() -> None:
    assert standalone(layout("pipeline alone")) == standalone(layout("pipeline alone"))


def test_it_asks_for_what_the_holding_job_asks_for_under_another_name() -> None:
    changes = {
        "slurm_partition": "gpu",
        "slurm_constraint": "h100&ib",
        "slurm_gres": "gpu:h100:4",
        "slurm_gpus_per_node": 0,
        "slurm_extra_args": ["--exclusive", "-C", "two words"],
    }
    engines = LAYOUTS["tensor in one node"][1]
    asked = wanted(inventory(2, engines=engines, **changes))
    given = set(submit_command(asked.settings)[2:])
    lines = [line for line in standalone(asked).splitlines() if line.startswith("#SBATCH")]
    assert lines == [f"#SBATCH {one}" for one in directives(asked)]
    ours = {one.replace("'", "") for one in directives(asked)}
    # The holding job drains before its end; the script is told a moment before its own.
    differ = ("--job-name", "--comment", "--chdir", "--output", "--signal")
    assert {one for one in given - ours if not one.startswith(differ)} == {
        "--exclusive",
        "-C",
        "two words",
    }
    assert lines[-1] == "#SBATCH --exclusive -C 'two words'"
    # The product would take a job of its own name for the one that it may fill.
    assert "--job-name=vllm-r1-script" in ours


@pytest.mark.parametrize("name", ["several engines in one job", "data ranks that share experts"])
def test_what_it_publishes_has_the_form_of_the_products_own(name: str) -> None:
    asked = layout(name)
    text = standalone(asked)
    document = text.partition("<<JSON\n")[2].partition("\nJSON\n")[0]
    said = subprocess.run(
        ["bash", "-euc", f"ADDRESS=(10.0.0.1 10.0.0.2 10.0.0.3)\ncat <<JSON\n{document}\nJSON"],
        env={
            "PATH": os.environ["PATH"],
            "KEY_FILE": "/k",
            "SLURM_JOB_ID": "12",
            "USER": "ann",
            "SLURM_SUBMIT_HOST": "login",
            "ends": "null",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    addresses = {name: host["address"] for name, host in facts(asked, "/d").items()}
    engines = asked.plan.to_dict()["engines"]
    expected = published(engines, addresses, "/k", "12", 0, "ann@login")
    assert json.loads(said.stdout) == expected


def test_every_data_rank_has_to_answer_and_finds_its_key() -> None:
    text = standalone(layout("data ranks that share experts"))
    asked = [line for line in text.splitlines() if line.startswith("answers ")]
    assert [line.split()[1] for line in asked] == [
        f'"http://${{ADDRESS[{slot}]}}:{port}"'
        for slot, port in ((0, 20020), (0, 20021), (1, 20022), (1, 20023))
    ]
    files = text.partition("chat_files() {")[2].partition("\n}")[0]
    assert "key.yaml" in files
    assert "if ((slot" not in files


def test_what_must_stay_on_its_node_is_written_for_vllm() -> None:
    text = standalone(layout("tensor by pipeline over nodes"))
    line = next(line for line in text.splitlines() if line.startswith("STAY="))
    assert set(json.loads(line.removeprefix("STAY=").strip("'"))) == set(KEPT_ON_THEIR_HOST)


def test_a_key_of_the_users_is_read_and_none_is_made() -> None:
    engines = LAYOUTS["tensor in one node"][1]
    text = standalone(wanted(inventory(1, engines=engines, vllm_api_key_file="/home/me/my key")))
    assert "KEY_FILE='/home/me/my key'" in text
    assert "sk-%s" not in text


@pytest.mark.parametrize(
    ("model", "nodes", "count"),
    [("H100-80", 4, 4), ("H200", 2, 4)],
)
def test_r1_is_planned_as_the_planner_plans_it(
    model: str, nodes: int, count: int, tmp_path: Path
) -> None:
    place = tmp_path / "DeepSeek-R1"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(R1))
    engines = [
        {
            "name": "r1",
            "model": str(place),
            "vllm_args": {"max_num_seqs": 112, "reasoning_parser": "deepseek_r1"},
        }
    ]
    hosts = inventory(nodes, engines=engines, accelerator_model=model, slurm_gpus_per_node=count)
    asked = wanted(hosts, readable)
    (engine,) = asked.plan.engines
    assert engine.estimate
    text = standalone(asked)
    assert f"--tensor-parallel-size {engine.layout.tensor}" in text
    if engine.layout.data > 1:
        assert f"--data-parallel-size {engine.layout.data}" in text
    else:
        assert f"--pipeline-parallel-size {engine.layout.pipeline}" in text
    assert len(engine.ranks) == nodes * count
    assert all(reason in text for reason in engine.reasons)
    path = tmp_path / "r1.sbatch"
    path.write_text(text)
    subprocess.run(["shellcheck", path], check=True)
