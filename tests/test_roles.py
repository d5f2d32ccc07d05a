"""What a role takes is said once, in its argument specification, and is what its defaults hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from jinja2 import Environment, nodes

from vllm_ansible.accelerators.platform import platforms

ROOT = Path(__file__).parents[1]
ROLES = sorted(path.name for path in (ROOT / "roles").iterdir())
# Its variables are those of a whole site, and other roles read them: they carry no prefix.
UNPREFIXED = "site"


def read(path: Path) -> Any:
    """Return what a YAML file holds; nothing where there is no file."""
    return (yaml.safe_load(path.read_text()) if path.exists() else None) or {}


def specification(role: str) -> dict[str, Any]:
    found: dict[str, Any] = read(ROOT / "roles" / role / "meta/argument_specs.yml")
    return found["argument_specs"]["main"]


def defaults(role: str) -> dict[str, Any]:
    found: dict[str, Any] = read(ROOT / "roles" / role / "defaults/main.yml")
    return found


def options(tree: dict[str, Any], above: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every option with its name, those inside others with a dot."""
    for name, option in tree.items():
        yield f"{above}{name}", option
        yield from options(option.get("options", {}), f"{above}{name}.")


def tasks(role: str) -> Iterator[dict[str, Any]]:
    """Yield every task of a role, those in blocks included."""
    queue = [
        task for path in (ROOT / "roles" / role / "tasks").glob("*.yml") for task in read(path)
    ]
    while queue:
        task = queue.pop()
        yield task
        for kind in ("block", "rescue", "always"):
            queue += task.get(kind, [])


@pytest.mark.parametrize("role", ROLES)
def test_defaults_are_what_the_specification_says(role: str) -> None:
    wanted = {
        name: option["default"]
        for name, option in specification(role)["options"].items()
        if "default" in option
    }
    assert defaults(role) == wanted


@pytest.mark.parametrize("role", ROLES)
def test_every_option_has_a_default_or_says_that_it_is_required(role: str) -> None:
    for name, option in specification(role)["options"].items():
        assert ("default" in option) != option.get("required", False), name


@pytest.mark.parametrize("role", ROLES)
def test_defaults_pass_their_own_specification_as_they_are(role: str) -> None:
    def plain(tree: dict[str, Any]) -> dict[str, Any]:
        # `description` is for people: the validator does not know it.
        return {
            name: {
                key: plain(value) if key == "options" else value
                for key, value in option.items()
                if key != "description"
            }
            for name, option in tree.items()
        }

    values = defaults(role)
    result = ArgumentSpecValidator(plain(specification(role)["options"])).validate(values)
    assert result.error_messages == []
    for name, value in values.items():
        if not isinstance(value, list):  # the engines gain what they leave out
            assert result.validated_parameters[name] == value, name


@pytest.mark.parametrize("role", ROLES)
def test_everything_is_described(role: str) -> None:
    found = specification(role)
    assert found["short_description"] and found["description"]
    for name, option in options(found["options"]):
        assert option.get("description"), f"{role}: {name} has no description"
        assert option.get("type"), f"{role}: {name} has no type"


@pytest.mark.parametrize("role", ROLES)
def test_names_begin_with_their_role(role: str) -> None:
    public = [] if role == UNPREFIXED else list(specification(role)["options"])
    fixed = list(read(ROOT / f"roles/{role}/vars/main.yml"))
    assert [name for name in [*public, *fixed] if not name.startswith(f"{role}_")] == []
    own = (f"__{role}_", f"{role}_")
    # A bundle says where packages come from, in place of what the inventory says.
    unprefixed = list(specification(role)["options"]) if role == UNPREFIXED else []
    for task in tasks(role):
        facts = task.get("ansible.builtin.set_fact", {})
        registered = {task["register"]} if "register" in task else set()
        for name in {*facts, *registered}:
            assert name.startswith(own) or name in unprefixed, f"{role}: {name}"
        assert not any(name.startswith(f"{role}_") for name in registered), registered


def test_the_variables_of_a_site_are_documented_where_they_are_set() -> None:
    text = (ROOT / "roles/site/meta/argument_specs.yml").read_text()
    assert "carry no role's prefix" in text
    prefixes = tuple(f"{role}_" for role in ROLES if role not in (UNPREFIXED, "vllm"))
    # vllm_api_key_file is the site's: the key exists before the role vllm is played.
    assert not [name for name in specification("site")["options"] if name.startswith(prefixes)]


def test_no_variable_has_two_homes() -> None:
    names = [name for role in ROLES for name in specification(role)["options"]]
    assert len(names) == len(set(names))


def expressions(value: Any, key: str = "") -> Iterator[str]:
    """Yield every Jinja expression below a value of a task or of a role's variables."""
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from expressions(inside, str(name))
    elif isinstance(value, list):
        for inside in value:
            yield from expressions(inside, key)
    elif isinstance(value, str):
        yield f"{{{{ {value} }}}}" if key in ("when", "until", "failed_when") else value


def reads(role: str) -> set[str]:
    """Return the names of all variables that a role's expressions read."""
    fixed = read(ROOT / f"roles/{role}/vars/main.yml")
    texts = [*expressions(list(tasks(role))), *expressions(fixed)]
    trees = [Environment(autoescape=True).parse(text) for text in texts]
    return {name.name for tree in trees for name in tree.find_all(nodes.Name)}


def left_by_others(role: str) -> set[str]:
    """Return what the site gives, and what other roles leave on their hosts."""
    names = {"site_plan", *specification("site")["options"]}
    names.update(read(ROOT / "roles/site/vars/main.yml"))
    for other in ROLES:
        for task in tasks(other):
            names.update(task.get("ansible.builtin.set_fact", {}))
    return {name for name in names if not name.startswith((f"{role}_", "__"))}


@pytest.mark.parametrize("role", [role for role in ROLES if role != UNPREFIXED])
def test_a_role_says_what_it_reads_of_others(role: str) -> None:
    told = " ".join(specification(role)["description"])
    found = reads(role) & left_by_others(role)
    assert [name for name in sorted(found) if f"C({name})" not in told] == []


@pytest.mark.parametrize("role", ROLES)
def test_every_role_is_played_and_has_a_scenario(role: str) -> None:
    books = " ".join(path.read_text() for path in (ROOT / "playbooks").rglob("*.yml"))
    drivers = {one.driver_role for one in platforms().values()}
    named = re.search(rf"(role|name): {role}\b", books) or role in drivers
    assert named, "no playbook plays it"
    assert (ROOT / "molecule" / role / "converge.yml").exists()
    assert (ROOT / "molecule" / role / "molecule.yml").exists()


@pytest.mark.parametrize("role", ROLES)
def test_roles_keep_the_order_out_of_themselves_and_hide_no_failure(role: str) -> None:
    assert not read(ROOT / f"roles/{role}/meta/main.yml").get("dependencies")
    for task in tasks(role):
        assert not {"ignore_errors", "tags", "ansible.builtin.shell", "shell"} & set(task), task
        for kind in ("include_role", "import_role"):
            assert f"ansible.builtin.{kind}" not in task, task


def test_a_stage_sees_in_one_task_that_nothing_is_left_to_find_out() -> None:
    (task,) = read(ROOT / "roles/site/tasks/stage.yml")
    assert "site_host is not defined" in task["when"]
    assert task["ansible.builtin.include_tasks"] == "begin.yml"


PLUGINS = [
    path
    for folder in ("action_plugins", "filter_plugins")
    for path in sorted((ROOT / folder).glob("*.py"))
] + [ROOT / "src/vllm_ansible/inventory/play_variables.py"]
UNASKED = "a stage that leaves itself out has played no role yet"
# What plugins read of a play by a name of their own, and why the task does not give it to them.
RENTED = "what the inventory plugin of a cloud has said of this machine"
READ_BY_NAME = {
    "accept_machine": {"provision_machine": RENTED},
    "check_inventory": {"provision_unasked": "reads whatever a run was given"},
    "cluster_diagnosis": {
        "site_host": "describes what is there of a cluster, however little that is",
        "verification_kept": "describes what is there of a cluster, however little that is",
    },
    "diagnose": {"verification_kept": "takes what the run knows, however far it came"},
    "door_filters": {"door_clients_file": UNASKED},
    "observe_filters": {"observe_mode": UNASKED},
    "play_variables": {
        "plan_processes": UNASKED,
        "provision_machine": RENTED,
        "provision_provider": RENTED,
        "__vllm_processes": UNASKED,
    },
    "provision_filters": {
        "__provision_verdict": "its own role's, of machines that other hosts ask for",
        "provision_machine": RENTED,
        "router_served": "publishes where engines answer, whoever stands before them",
        "site_host": "publishes where engines answer, whoever stands before them",
    },
    "ramp_report": {"benchmark_usd_per_hour": RENTED, "provision_machine": RENTED},
    "rented_machines": {"provision_provider": RENTED},
    "rented_orphans": {"provision_provider": RENTED},
    "replaced_machines": {"provision_machine": RENTED},
    "sweep_point": {"ansible_failed_result": "set by Ansible itself where a task fails"},
}


def names_of_plays() -> set[str]:
    """Return what roles and playbooks leave in variables, and the options of roles."""
    queue = [task for path in (ROOT / "playbooks").rglob("*.yml") for task in read(path) or ()]
    names = {name for role in ROLES for name in read(ROOT / f"roles/{role}/vars/main.yml")}
    prefixed = {name for role in ROLES if role != UNPREFIXED for name in defaults(role)}
    while queue:
        task = queue.pop()
        for kind in ("block", "rescue", "always", "tasks", "pre_tasks", "post_tasks"):
            queue += task.get(kind) or []
        names.update(task.get("ansible.builtin.set_fact", {}), {task.get("register", "")})
    for role in ROLES:
        for task in tasks(role):
            names.update(task.get("ansible.builtin.set_fact", {}), {task.get("register", "")})
    return (names | prefixed | {"provision_machine"}) - {""}


def read_by_name(source: str, names: set[str]) -> set[str]:
    """Return which of these names a plugin looks up in a mapping, or gathers of all hosts."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        looked: list[ast.expr] = []
        if isinstance(node, ast.Subscript):
            looked = [node.slice]
        elif isinstance(node, ast.Call):
            looked = list(node.args)
        elif isinstance(node, ast.Assign):
            looked = [node.value]
        elif isinstance(node, ast.Compare):
            looked = [node.left]
        found |= {one.value for one in looked if isinstance(one, ast.Constant)} & names
    return found


def test_a_plugin_reads_no_variable_that_it_was_not_given() -> None:
    names = names_of_plays()
    assert len(names) > 200
    found = {path.stem: read_by_name(path.read_text(), names) for path in PLUGINS}
    assert {one: read for one, read in found.items() if read} == {
        one: set(reasons) for one, reasons in READ_BY_NAME.items()
    }


def test_a_name_that_a_plugin_was_not_given_is_found_however_it_is_read() -> None:
    for line in (
        'variables["hostvars"][host]["site_host"]',
        'variables.get("site_host")',
        'of_each_host(variables, hosts, arguments.get("hosts", "site_host"))',
        '"site_host" in variables',
        'FOUND = "site_host"',
    ):
        assert read_by_name(line, {"site_host"}) == {"site_host"}, line
    assert not read_by_name('{"site_host": site_host}', {"site_host"})


def test_gates_are_judged_by_one_action_and_each_judge_is_asked() -> None:
    names = {path.stem for path in PLUGINS} | {path.stem for path in (ROOT / "library").glob("*")}
    assert [name for name in names if name.endswith("_gate")] == []
    # The module-level table of the action, which is no package.
    (table,) = (
        ast.literal_eval(node.value)
        for node in ast.parse((ROOT / "action_plugins/gate.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "JUDGES"
    )
    asked = {
        task["gate"]["judge"]: task["gate"]
        for role in ROLES
        for task in tasks(role)
        if "judge" in task.get("gate", {})
    }
    assert set(asked) == set(table)
    for name, room in table.items():
        assert callable(import_module(room).judge), name
