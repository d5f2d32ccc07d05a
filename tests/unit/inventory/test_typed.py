"""What comes as text, as all of `-e name=value` does, has the type that its variable has."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from vllm_ansible.inventory.accepted import accepts
from vllm_ansible.inventory.specs import Option, load_options
from vllm_ansible.inventory.typed import as_given, is_typed, typed
from vllm_ansible.inventory.variables import wrong_types

ROOT = Path(__file__).parents[3]
OPTIONS = load_options(ROOT / "roles")
SCALARS = sorted(name for name, one in OPTIONS.items() if one.type in ("bool", "float", "int"))
BOOLEANS = [name for name in SCALARS if OPTIONS[name].type == "bool"]
WORDS = {"true": True, "yes": True, "1": True, "on": True, "false": False, "no": False, "0": False}


@pytest.mark.parametrize("word", WORDS)
def test_every_boolean_means_what_the_word_says(word: str) -> None:
    assert len(BOOLEANS) > 15
    assert {name: typed(OPTIONS[name], word) for name in BOOLEANS} == dict.fromkeys(
        BOOLEANS, WORDS[word]
    )


@pytest.mark.parametrize("name", SCALARS)
def test_the_default_of_each_number_and_boolean_comes_back_from_its_text(name: str) -> None:
    option = OPTIONS[name]
    assert is_typed(option, option.default)
    found = typed(option, str(option.default).lower())
    assert is_typed(option, found) and found == option.default


@pytest.mark.parametrize("name", SCALARS)
def test_a_text_that_is_none_of_them_stays_to_be_refused(name: str) -> None:
    option = OPTIONS[name]
    for word in ("perhaps", "", "2.5.1", None):
        assert typed(option, word) is word
        (problem,) = wrong_types({"h": {name: word}}, OPTIONS, accepts, lambda *_: "-e")
        assert problem.expected and problem.found and problem.fix


@pytest.mark.parametrize("word", ["nan", "inf", "-1"])
def test_no_number_is_no_number(word: str) -> None:
    value = typed(OPTIONS["max_hours"], word)
    assert wrong_types({"h": {"max_hours": value}}, OPTIONS, accepts, lambda *_: "-e")


def test_a_boolean_is_no_number_and_a_number_other_than_0_and_1_no_boolean() -> None:
    assert typed(OPTIONS["node_count"], True) is True
    assert wrong_types({"h": {"node_count": True}}, OPTIONS, accepts, lambda *_: "")
    assert typed(OPTIONS["load_page"], 1) is True
    assert typed(OPTIONS["load_page"], 2) == 2


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("replace_hosts", "r1-3, r1-7", ["r1-3", "r1-7"]),
        ("verify_accept", '["links@a", "clock"]', ["links@a", "clock"]),
        ("engines", '[{"name": "a", "model": "o/m"}]', [{"name": "a", "model": "o/m"}]),
        ("sources_environment", '{"A": "b"}', {"A": "b"}),
        ("engines", "[{name: a, model: o/m}]", [{"name": "a", "model": "o/m"}]),
        ("engines", "[{name: a", "[{name: a"),
        # Whoever writes a template has its value, and what is no list is refused elsewhere.
        ("engines", "{{ my_engines }}", "{{ my_engines }}"),
        ("engines", "chat", "chat"),
        ("cluster_name", "5", "5"),
    ],
)
def test_lists_and_mappings_of_the_command_line_are_read_too(
    name: str, text: str, value: Any
) -> None:
    assert as_given(OPTIONS[name], text) == value


def test_an_option_keeps_what_is_of_its_type() -> None:
    option = Option("x", "site", {"type": "list", "elements": "str"})
    value = ["a"]
    assert as_given(option, value) is value


def played(
    directory: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a playbook of somebody else's with this project's settings."""
    shown = "{{ dict(my_names | zip(my_names | map('extract', vars))) | to_json }}"
    task = {"name": "Show", "ansible.builtin.debug": {"msg": shown}}
    page = [{"hosts": "all", "gather_facts": False, "tasks": [task]}]
    (directory / "play.yml").write_text(yaml.safe_dump(page))
    (directory / "hosts.ini").write_text(
        "[gpu]\nhere ansible_connection=local\n[gpu:vars]\n"
        'nfs_cache_required=no\nmy_text=7\nreach_kernel_ports="{{ my_text | string }}"\n'
        "lambda_adopt=\"{{ 'off' }}\"\n"
    )
    return warm.play(
        ["-i", directory / "hosts.ini", directory / "play.yml", *arguments],
        cwd=ROOT,
        env={**os.environ, "VLLM_ANSIBLE_RUNS_DIR": str(directory / "runs"), **environment},
    )


@pytest.mark.plays
def test_all_booleans_reach_tasks_as_the_command_line_and_the_inventory_say(tmp_path: Path) -> None:
    inventory = {"nfs_cache_required": False, "reach_kernel_ports": 7, "lambda_adopt": False}
    words = ["false", "no", "0", "true", "yes", "1"]
    given = {
        name: words[at % len(words)] for at, name in enumerate(BOOLEANS) if name not in inventory
    }
    wanted = {name: WORDS[word] for name, word in given.items()}
    given |= {"node_count": "3", "max_hours": "1.5"}
    wanted |= {"node_count": 3, "max_hours": 1.5, **inventory}
    arguments = [part for name, word in given.items() for part in ("-e", f"{name}={word}")]
    names = json.dumps({"my_names": sorted(wanted)})
    done = played(tmp_path, *arguments, "-e", names)
    assert done.returncode == 0, done.stdout + done.stderr
    shown = next(line for line in done.stdout.splitlines() if line.lstrip().startswith("{"))
    assert json.loads(shown) == wanted
