"""What differs by accelerator or by cloud is asked of an object: no other file names one.

Comments, docstrings and documentation of variables and modules may. An exception says why it is
one, and one that is not needed any more is refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from keyword import iskeyword
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.provision.giver import givers

ROOT = Path(__file__).parents[1]
PLUGINS = ("action", "callback", "connection", "filter", "inventory")
LOOKED_AT = ("src", "roles", "playbooks", "library", *(f"{one}_plugins" for one in PLUGINS))
DOCUMENTATION = {"DOCUMENTATION", "EXAMPLES", "RETURN"}
DESCRIPTIONS = {"author", "description", "short_description"}

ACCELERATORS = re.compile(r"nvidia|cuda|enflame|gcu|\brocm|\bamd\b|eccl|^cpu$|['\"]cpu['\"]", re.I)
ROOMS_OF_ACCELERATORS = (
    "src/vllm_ansible/accelerators/",
    "src/vllm_ansible/node/accelerators/",
    "src/vllm_ansible/verify/preflight/platforms/",
    *(f"src/vllm_ansible/node/preflight/{one}.py" for one in ("devices", "enflame_devices")),
    # The counterparts of the drivers' roles.
    *("src/vllm_ansible/drivers/", "src/vllm_ansible/node/drivers/"),
    *("roles/nvidia_driver/", "roles/enflame_driver/"),
    *("library/nvidia_driver_", "library/enflame_driver_"),
    *("action_plugins/nvidia_driver_", "action_plugins/enflame_driver_"),
)
LIBRARIES = "names the collective libraries that its programs speak, or quotes them"
CUDA_RELEASE = "the release of CUDA decides what FlashInfer compiles, and preflight_cuda is public"
BUILDS = "the release of the CUDA toolkit is in the key of a wheel that was built on a host"
PROBE = "judges what accelerator_probe measured, which speaks to the CUDA driver alone"
BARE_PODS = "RunPod's own word for what a pod without accelerators computes with"
KERNELS = "the planner's own words for vLLM's kernels, those of Platform.software"
EXCEPTIONS_OF_ACCELERATORS = {
    "src/vllm_ansible/record/diagnosis/": "knows errors by the words in which makers print them",
    "src/vllm_ansible/node/engine/log.py": "reads lines of vLLM's log, which name its own files",
    "src/vllm_ansible/node/watchdog/compiling.py": "knows compilers by the names of their programs",
    "src/vllm_ansible/node/preflight/look.py": "Ansible sends to hosts what is imported by name",
    "src/vllm_ansible/node/preflight/repair.py": "resets what the check of NVIDIA's log asks for",
    "src/vllm_ansible/node/environment/image_program.py": "keeps their variables out of images",
    "src/vllm_ansible/node/image/command.py": "an image that is given no device is the default",
    "library/engine_image.py": "an image that is given no device is the default",
    "src/vllm_ansible/inventory/variables.py": "says of a variable that was what replaced it",
    "src/vllm_ansible/plan/estimate/memory/": KERNELS,
    "src/vllm_ansible/plan/ladder.py": "names vLLM's own option cudagraph_mode",
    "src/vllm_ansible/plan/estimate/layouts/command.py": "the help of --eager names CUDA graphs",
    "src/vllm_ansible/provision/aws_checks.py": "the name of the image that AWS keeps for GPUs",
    "src/vllm_ansible/provision/runpod_settings.py": "shows how RunPod names a machine",
    "src/vllm_ansible/provision/runpod_pods.py": BARE_PODS,
    "src/vllm_ansible/provision/runpod_template.py": BARE_PODS,
    "src/vllm_ansible/inventory/rented.py": "a machine beside a cluster has no accelerators",
    "src/vllm_ansible/verify/collectives/": LIBRARIES,
    "src/vllm_ansible/verify/culprits.py": "says with which commands of makers links are looked at",
    "src/vllm_ansible/verify/devices.py": PROBE,
    "library/accelerator_probe.py": PROBE,
    "roles/collectives/": LIBRARIES,
    "library/collective_ranks.py": LIBRARIES,
    "roles/vllm/files/reference_numbers.py": "hides all devices from a computation on processors",
    "playbooks/reset_devices.yml": "the playbook of one driver's role, which nothing else plays",
    "src/vllm_ansible/environment/lock.py": CUDA_RELEASE,
    "src/vllm_ansible/node/preflight/kernels.py": CUDA_RELEASE,
    **{
        f"src/vllm_ansible/verify/preflight/{one}.py": CUDA_RELEASE
        for one in ("check", "gate", "host_facts", "kernels", "request")
    },
    "roles/preflight/": CUDA_RELEASE,
    "filter_plugins/preflight_filters.py": CUDA_RELEASE,
    "filter_plugins/environment_filters.py": CUDA_RELEASE,
    "src/vllm_ansible/environment/gate.py": BUILDS,
    "src/vllm_ansible/node/environment/wheel_build.py": BUILDS,
    "src/vllm_ansible/node/system/host.py": BUILDS,
    "src/vllm_ansible/wheels/": BUILDS,
}

# Whoever gives a cluster its hosts has its own files: its name in front of them, or its directory.
GIVERS = sorted(givers())
ROOMS_OF_CLOUDS = (
    "src/vllm_ansible/provision/givers/",
    *(
        f"{place}{name}{end}"
        for name in GIVERS
        for place, end in (
            ("src/vllm_ansible/provision/", "_"),
            ("src/vllm_ansible/", "/"),
            ("src/vllm_ansible/node/", "/"),
            ("library/", "_"),
            *((f"{one}_plugins/", "_") for one in ("action", "connection", "inventory")),
        )
    ),
)


def cloud_words(names: Iterable[str]) -> re.Pattern[str]:
    """Return what names one; a name that is a word of Python only where it cannot be that."""
    kinds = (
        (rf"^{name}$|['\"]{name}['\"]|{name}_" if iskeyword(name) else rf"(?<![a-z]){name}")
        for name in names
    )
    return re.compile("|".join([*kinds, r"\bec2\b"]), re.IGNORECASE)


CLOUDS = cloud_words(GIVERS)
STORAGE = "object storage is spoken to in Amazon's protocol, with its variables and files"
EFA = "names files and log lines of the network EFA and its plugin, which AWS publishes"
STEPS = "the role's steps for an allocation, which nothing rents"
EXCEPTIONS_OF_CLOUDS = {
    "src/vllm_ansible/record/diagnosis/": "knows errors by the words in which clouds print them",
    "src/vllm_ansible/record/rented.py": "the way through a login node is known to Slurm's room",
    "src/vllm_ansible/record/shapes.py": "hides the signatures of requests to object storage",
    "src/vllm_ansible/cli/main.py": "the verb that writes a script for sbatch",
    "playbooks/sbatch.yml": "the playbook that writes a script for sbatch",
    "playbooks/teardown.yml": "asks whether an allocation still answers before it is used",
    "src/vllm_ansible/node/notices.py": "its bytes name a directory on hosts that serve",
    "roles/provision/vars/main.yml": "settings whose bytes name a file on such hosts",
    "src/vllm_ansible/node/system/host.py": "what a site's job has set is looked at with the rest",
    "src/vllm_ansible/node/system/instance_store.py": "the model that a local disk reports at AWS",
    "src/vllm_ansible/node/system/efa_cards.py": EFA,
    "src/vllm_ansible/plan/fabric.py": EFA,
    "src/vllm_ansible/plan/restarts.py": "an allocation may end while a restart holds its lock",
    "src/vllm_ansible/system/efa.py": EFA,
    "roles/system/tasks/efa.yml": EFA,
    "src/vllm_ansible/verify/collectives/": EFA,
    "src/vllm_ansible/inventory/secret_files.py": STORAGE,
    "src/vllm_ansible/node/weights/fetch.py": STORAGE,
    "roles/weights/": STORAGE,
    "roles/provision/tasks/": STEPS,
    "filter_plugins/provision_filters.py": STEPS,
    "roles/site/": "documents every variable of an inventory that has no role of its own",
    "library/hf_snapshot.py": STORAGE,
}


def words_of_python(text: str) -> Iterator[tuple[int, str]]:
    """Yield the names and texts of a program that it works with, by their lines."""
    tree = ast.parse(text)
    documented = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            documented.add(body[0].value)
        if isinstance(node, ast.Assign) and any(
            isinstance(one, ast.Name) and one.id in DOCUMENTATION for one in node.targets
        ):
            documented.add(node.value)
    for node in ast.walk(tree):
        if node in documented:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            yield node.lineno, value
        for name in ("id", "attr", "arg", "name", "module", "asname"):
            value = getattr(node, name, None)
            if isinstance(value, str):
                yield getattr(node, "lineno", 0), value


def words_of_yaml(page: Any) -> Iterator[str]:
    """Yield keys and values of a page, without what only describes."""
    if isinstance(page, Mapping):
        for key, value in page.items():
            if key not in DESCRIPTIONS:
                yield str(key)
                yield from words_of_yaml(value)
    elif isinstance(page, list):
        for one in page:
            yield from words_of_yaml(one)
    elif isinstance(page, str):
        yield page


def named(file: Path, words: re.Pattern[str]) -> list[str]:
    """Return what a file names, each with its line where that is known."""
    text = file.read_text(encoding="utf-8")
    if not re.search(words.pattern.replace("^", "").replace("$", ""), text, words.flags):
        return []
    if file.suffix == ".py":
        return [f"{line}: {one}" for line, one in words_of_python(text) if words.search(one)]
    if file.suffix == ".yml":
        pages = [list(words_of_yaml(page)) for page in yaml.safe_load_all(text)]
        return [one for page in pages for one in page if words.search(one)]
    return [one for one in text.splitlines() if words.search(one)]


def files(top: Path) -> Iterator[str]:
    """Yield the files that are looked at."""
    for room in LOOKED_AT:
        for file in sorted((top / room).rglob("*")):
            if file.suffix in (".py", ".yml", ".j2", ".sh", ".lua") and file.is_file():
                yield str(file.relative_to(top))


def refused(
    top: Path, words: re.Pattern[str], rooms: tuple[str, ...], exceptions: Mapping[str, str]
) -> list[str]:
    """Return the files that name one and should not, and exceptions that nothing needs."""
    found: dict[str, list[str]] = {}
    for file in files(top):
        if not file.startswith(rooms) and (names := named(top / file, words)):
            found[file] = names
    excused = {file: [one for one in exceptions if file.startswith(one)] for file in found}
    used = {one for those in excused.values() for one in those}
    return [
        *(f"{file} names {found[file][0][:80]!r}" for file, those in excused.items() if not those),
        *(f"{one} needs no exception" for one in exceptions if one not in used),
    ]


@pytest.mark.parametrize(
    ("words", "rooms", "exceptions"),
    [
        (ACCELERATORS, ROOMS_OF_ACCELERATORS, EXCEPTIONS_OF_ACCELERATORS),
        (CLOUDS, ROOMS_OF_CLOUDS, EXCEPTIONS_OF_CLOUDS),
    ],
    ids=["accelerators", "clouds"],
)
def test_only_its_own_files_name_an_accelerator_or_a_cloud(
    words: re.Pattern[str], rooms: tuple[str, ...], exceptions: Mapping[str, str]
) -> None:
    assert refused(ROOT, words, rooms, exceptions) == []
    assert all(len(why.split()) > 4 for why in exceptions.values())


def test_a_name_in_a_condition_is_refused_and_one_in_a_comment_is_not(tmp_path: Path) -> None:
    made = {
        "src/plain.py": '"""Of NVIDIA."""\n# CUDA\nfound = 1\n',
        "src/branch.py": 'def one(kind):\n    """Of none."""\n    return kind == "enflame"\n',
        "src/processors.py": 'found = kind != "cpu"\n',
        "roles/one/tasks/main.yml": "- when: host.accelerator == 'nvidia'\n  debug:\n",
        "roles/one/meta/argument_specs.yml": "options:\n  a: {description: Of NVIDIA.}\n",
        "src/own/room.py": 'found = "cuda"\n',
        "src/excused.py": 'found = "gcu"\n',
    }
    for name, text in made.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    excused = {"src/excused.py": "there is a reason", "src/plain.py": "there is none"}
    assert refused(tmp_path, ACCELERATORS, ("src/own/",), excused) == [
        "src/branch.py names '3: enflame'",
        "src/processors.py names '1: cpu'",
        "roles/one/tasks/main.yml names \"host.accelerator == 'nvidia'\"",
        "src/plain.py needs no exception",
    ]
    clouds = {
        "src/cloud.py": 'found = name == "lambda"\n',
        "src/key.py": "order = lambda one: one\n",
    }
    for name, text in clouds.items():
        (tmp_path / name).write_text(text)
    assert refused(tmp_path, CLOUDS, (), {}) == ["src/cloud.py names '1: lambda'"]


def test_a_cloud_that_is_added_is_known_without_a_list_of_this_test(tmp_path: Path) -> None:
    assert {"aws", "lambda", "runpod", "slurm"} <= set(GIVERS)
    (tmp_path / "src").mkdir()
    (tmp_path / "src/branch.py").write_text('found = name == "imagined"\ndraws = "outlaws"\n')
    words = cloud_words([*GIVERS, "imagined"])
    assert refused(tmp_path, words, (), {}) == ["src/branch.py names '1: imagined'"]
