"""What documents name exists: files, modules, headings, commands, variables, tests."""

from __future__ import annotations

import ast
import copy
import functools
import importlib.util
import re
import shlex
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from vllm_ansible.inventory.command_line import tags_of
from vllm_ansible.plan.estimate.layouts import command as plan_command
from vllm_ansible.record.diagnosis.match import signatures

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/*.md", "inventories/*/*.md", "packages/*/*.md", "benchmarks/*.md")
    for path in ROOT.glob(pattern)
)
# Directories of the repository that code in a document may name files of.
TOPS = (
    *("action_plugins", "benchmarks", "callback_plugins", "connection_plugins", "docs"),
    *("filter_plugins", "inventories", "inventory_plugins", "library", "molecule", "packages"),
    *("playbooks", "requirements", "roles", "src", "tests", "tools"),
)
# Written by a command, so not there before it has run.
MADE = {"inventories/lab/hosts.yml"}
# What a reader writes.
MINE = "inventories/mine"
LEVELS = {"hardware", "real", "emulated", "rendered"}

every_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def code(document: Path) -> list[str]:
    """Return every line of code blocks, and every piece of code in the text."""
    _, *parts = f"\n{document.read_text()}".split("\n```")
    # What is between two fences is a block, and what follows the second is text again.
    blocks = [line for part in parts[::2] for line in part.splitlines()[1:]]
    text = "\n".join([f"\n{document.read_text()}".split("\n```")[0], *parts[1::2]])
    return [*blocks, *re.findall(r"`([^`\n]+)`", text)]


def expanded(path: str) -> list[str]:
    """Return the paths that braces stand for, with a star in every place left to the reader."""
    pieces = [piece.split(",") for piece in re.split(r"[{}]", re.sub(r"<[^>]*>", "*", path))]
    return ["".join(choice) for choice in product(*pieces)]


def exists(path: str) -> bool:
    return path in MADE or any(ROOT.glob(path.rstrip("/")))


def anchors(document: Path) -> set[str]:
    """Return the anchors that headings of a document have."""
    titles = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def links(document: Path) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", document.read_text())


@every_document
def test_links_lead_somewhere(document: Path) -> None:
    for link in links(document):
        if "://" in link:
            continue
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def named_paths(piece: str) -> list[str]:
    """Return the paths of the repository in a piece of code, also within a command."""
    return re.findall(rf"(?<![\w/.~-])(?:{'|'.join(TOPS)})/[\w/.*{{}},<>-]*[\w*}}>/]", piece)


def is_module(dotted: str) -> bool:
    """Tell whether this is a module of ours, or something in one."""
    place = ROOT.joinpath("src", *dotted.split("."))
    files = (place.with_suffix(".py"), place / "__init__.py", place.parent.with_suffix(".py"))
    return any(one.is_file() for one in files)


def lost(piece: str) -> list[str]:
    """Return the paths and modules of the repository that a piece names and that are not there."""
    paths = [
        path
        for path in named_paths(piece)
        if not path.startswith(MINE) and not all(exists(one) for one in expanded(path))
    ]
    modules = re.findall(r"\bvllm_ansible(?:\.\w+)+", piece)
    return paths + [one for one in modules if not is_module(one)]


@every_document
def test_files_and_modules_that_are_named_exist(document: Path) -> None:
    assert [name for piece in code(document) for name in lost(piece)] == []


def test_names_that_are_not_there_are_found_wherever_they_stand() -> None:
    assert lost("pytest -m soak tests/unit/no/test_b.py::test_c") == ["tests/unit/no/test_b.py"]
    assert lost("src/vllm_ansible/{plan,no}/") == ["src/vllm_ansible/{plan,no}/"]
    assert lost("python -m vllm_ansible.no.plan up") == ["vllm_ansible.no.plan"]
    assert lost("python -m vllm_ansible.lab up; vllm_ansible.problem.Problem") == []
    assert lost("https://example.org/docs/a.md /opt/src/a.py ~/tests/a.py") == []


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@every_document
def test_targets_of_make_that_are_named_exist(document: Path) -> None:
    for piece in code(document):
        for target in re.findall(r"(?:^\s*|sudo |or: )make ([a-z][a-z-]*)", piece):
            assert target in make_targets(), piece


@functools.cache
def site_variables() -> dict[str, Any]:
    """Return every variable of every role with its specification."""
    found: dict[str, Any] = {}
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        found |= yaml.safe_load(path.read_text())["argument_specs"]["main"]["options"]
    return found


@functools.cache
def tags() -> set[str]:
    """Return every tag that some playbook takes."""
    books = [ROOT / "site.yml", *(ROOT / "playbooks").glob("*.yml")]
    return set().union(*map(tags_of, books))


@pytest.mark.parametrize(
    "document",
    [*DOCUMENTS, *sorted((ROOT / "roles").glob("*/meta/argument_specs.yml"))],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_tags_that_are_named_are_taken(document: Path) -> None:
    """`--tags verify,repair` was documented, and refused by every playbook."""
    named = re.findall(r"--tags[ =]([a-z_]+(?:,[a-z_]+)*)", document.read_text())
    assert [tag for group in named for tag in group.split(",") if tag not in tags()] == []


@every_document
def test_variables_that_are_given_exist(document: Path) -> None:
    for piece in code(document):
        for name in re.findall(r"-e (\w+)=", piece):
            assert name in site_variables(), name


def test_the_readme_lists_exactly_the_roles_there_are() -> None:
    words = " ".join((ROOT / "README.md").read_text().split())
    listed = re.search(r"ansible-doc -t role -r roles ([a-z_ ]+)`", words)
    assert listed is not None
    assert sorted(listed[1].split()) == sorted(path.name for path in (ROOT / "roles").iterdir())


@pytest.mark.parametrize("page", ["README.md", "docs/hosts.md"])
def test_the_inventory_of_a_page_is_made_of_known_variables(page: str) -> None:
    text = (ROOT / page).read_text()
    block = re.search(r"^# inventories/mine/group_vars/all.yml$(.*?)^```$", text, re.M | re.S)
    assert block is not None
    known = site_variables()
    given = yaml.safe_load(block[1])
    assert set(given) <= set(known)
    for engine in given["engines"]:
        assert set(engine) <= set(known["engines"]["options"])


def stages() -> list[str]:
    """Return the stages in the order that site.yml runs them."""
    books = [play["import_playbook"] for play in yaml.safe_load((ROOT / "site.yml").read_text())]
    return [Path(book).stem for book in books]


def test_the_readme_describes_the_stages_in_their_order() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert rows == [stage for stage in stages() if stage != "release"]


def test_the_picture_of_concepts_has_the_stages_in_their_order() -> None:
    picture = (ROOT / "docs/concepts.svg").read_text()
    assert re.findall(r'y="95">(\w+)<', picture) == [one for one in stages() if one != "release"]


def evidence() -> Iterator[tuple[str, str, str]]:
    """Yield capability, level and proof of each row."""
    text = (ROOT / "docs/evidence.md").read_text()
    for row in re.findall(r"^\|(.*)\|$", text, re.MULTILINE)[2:]:
        capability, level, proof = (cell.strip() for cell in row.split("|"))
        yield capability, level, proof


def named(proof: str) -> list[str]:
    """Return the tests, files, commands and documents that a proof names."""
    here = ROOT / "docs"
    files = [word for word in re.findall(r"`([^`]+)`", proof) if exists(word)]
    commands = re.findall(r"`make ([a-z-]+)`", proof)
    documents = [one for one in re.findall(r"\]\(([^)#]+)\)", proof) if (here / one).exists()]
    return [*files, *documents, *(one for one in commands if one in make_targets())]


def test_evidence_has_one_of_four_levels_and_names_what_shows_it() -> None:
    rows = list(evidence())
    assert len(rows) > 10
    wrong = [
        capability
        for capability, level, proof in rows
        if re.split(r"[,; ]", level)[0] not in LEVELS or not named(proof)
    ]
    assert wrong == []


def taken(path: Path) -> dict[str, Any] | None:
    """Return the options that a module or action takes, where its code writes them as they are."""
    tree = ast.parse(path.read_text())
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        for keyword in node.keywords if isinstance(node, ast.Call) else []:
            if keyword.arg == "argument_spec":
                value = keyword.value
                if isinstance(value, ast.Name):
                    value = constants[value.id]
                options: dict[str, Any] = ast.literal_eval(value)
                return options
    return None


def reference() -> Any:
    """Return the program that writes the pages of the reference."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools/reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_is_what_specs_and_signatures_say() -> None:
    for name, page in reference().pages().items():
        assert (ROOT / "docs" / name).read_text() == page, f"docs/{name}: run `make reference`"


def test_a_changed_spec_changes_the_reference() -> None:
    made = reference()
    specs = made.specs()
    for key, value in (("default", 9444), ("description", "Another."), ("type", "float")):
        changed = copy.deepcopy(specs)
        changed["door"]["options"]["door_port"][key] = value
        assert made.variables(changed) != made.variables(specs), key


def test_the_reference_lists_every_option_and_nothing_that_playbooks_set() -> None:
    page = (ROOT / "docs/variables.md").read_text()
    lacking = {name for name in site_variables() if f"| `{name}` |" not in page}
    # Each is set by a playbook, a role or an inventory plugin.
    assert "provision_machine" in lacking and len(lacking) < 24
    for name in lacking:
        described = " ".join(str(site_variables()[name]["description"]).split())
        assert re.search(r"Set by the inventory plugin|The stage \w+ gives", described), name


def given(tasks: Any) -> Iterator[str]:
    """Yield the variables that plays and their tasks set, at any depth."""
    for one in tasks if isinstance(tasks, list) else []:
        yield from one.get("vars", {})
        for part in ("tasks", "roles", "block", "always", "rescue"):
            yield from given(one.get(part))


def test_a_variable_that_a_stage_sets_for_a_role_is_not_shown_as_an_option() -> None:
    """What an inventory says of it would be overridden: `preflight_accept` once was."""
    page = (ROOT / "docs/variables.md").read_text()
    books = [yaml.safe_load(path.read_text()) for path in (ROOT / "playbooks").glob("*.yml")]
    names = {name for book in books for name in given(book)}
    assert "preflight_accept" in names
    assert [name for name in sorted(names) if f"| `{name}` |" in page] == []


def orphans(folder: Path, starts: list[Path]) -> set[str]:
    """Return the pages of a folder to which no chain of links leads from where a reader starts."""
    reached: set[Path] = set()
    waiting = [start.resolve() for start in starts]
    while waiting:
        page = waiting.pop()
        if page not in reached and page.suffix == ".md" and page.is_file():
            reached.add(page)
            targets = (link.partition("#")[0] for link in links(page) if "://" not in link)
            waiting += [(page.parent / target).resolve() for target in targets if target]
    return {path.name for path in folder.glob("*.md") if path.resolve() not in reached}


def test_every_page_is_reached_from_the_index_or_the_readme() -> None:
    assert orphans(ROOT / "docs", [ROOT / "docs/index.md", ROOT / "README.md"]) == set()


def test_a_page_without_a_link_to_it_is_found(tmp_path: Path) -> None:
    (tmp_path / "index.md").write_text("[a](a.md#part) [outside](https://example.org/c.md)")
    (tmp_path / "a.md").write_text("[b](b.md) [gone](gone.md)")
    for name in ("b.md", "c.md"):
        (tmp_path / name).write_text("# No links")
    assert orphans(tmp_path, [tmp_path / "index.md"]) == {"c.md"}


def test_the_index_is_linked_from_the_start_of_the_readme() -> None:
    assert "docs/index.md" in (ROOT / "README.md").read_text().partition("\n## ")[0]


# Pages of the index's first table that begin with what a reader types.
QUICKSTARTS = ("hosts", "lambda", "aws", "runpod", "slurm", "enflame")


@pytest.mark.parametrize("platform", [*QUICKSTARTS, "sources", "planner"])
def test_the_index_leads_to_each_platform_in_one_step(platform: str) -> None:
    assert f"{platform}.md" in links(ROOT / "docs/index.md")


@pytest.mark.parametrize("platform", QUICKSTARTS)
def test_a_platform_begins_with_what_it_needs_and_five_commands(platform: str) -> None:
    _, first, *_ = re.split(r"^## ", (ROOT / f"docs/{platform}.md").read_text(), flags=re.M)
    assert first.startswith("Quickstart\n")
    for need in ("SSH", "sudo", "Python", "driver", "ports"):
        assert need in first, need
    *_, commands = re.findall(r"^```\n(.*?)^```$", first, re.M | re.S)
    assert len(commands.splitlines()) == 5


def test_the_page_of_support_follows_code_and_evidence() -> None:
    made = reference()
    rows = made.evidence()
    changed = [
        (capability, "hardware" if capability.startswith("`site.yml` at RunPod") else level)
        for capability, level in rows
    ]
    assert "| [RunPod](runpod.md) | hardware |" in made.support(changed)
    for system, releases in made.SUPPORTED.items():
        for release in releases:
            assert f"| {system} {release} |" in made.support(rows)
    with pytest.raises(LookupError, match="no row"):
        made.support([row for row in rows if "RunPod" not in row[0]])


# Their config.json is kept here, so the planner answers without a network.
KEPT_CONFIGS = {"deepseek-ai/DeepSeek-R1": "deepseek-ai--DeepSeek-R1_config.json"}


def planned(document: Path) -> list[tuple[str, str]]:
    """Return each command of the planner that a document shows, with what it says is printed."""
    found = []
    for block in re.findall(r"(?:^(?: {4,}.*)?\n)+", document.read_text(), re.M):
        for command, shown in re.findall(
            r"^ +\$ vllm-ansible plan (.+)\n((?:(?! +\$ vllm-ansible).*\n)*)", block, re.M
        ):
            if command.split()[0] in KEPT_CONFIGS and "--offers" not in command:
                found.append((command, shown))
    return found


def differences(shown: str, printed: str) -> list[str]:
    """Return the parts of what is shown, between marks of omission, that are not printed so."""
    # Where a long command goes on in the next line depends on the length of the model's name.
    whole, place, lacking = " ".join(printed.replace("\\\n", " ").split()), 0, []
    for part in shown.replace("\\\n", " ").split("[...]"):
        words = " ".join(part.split())
        if (found := whole.find(words, place)) < 0:
            lacking.append(words)
        else:
            place = found + len(words)
    return lacking


@pytest.mark.parametrize(
    ("page", "command", "shown"),
    [
        pytest.param(document.name, command, shown, id=f"{document.stem}-{number}")
        for document in DOCUMENTS
        for number, (command, shown) in enumerate(planned(document))
    ],
)
def test_the_planner_prints_what_a_document_shows(
    page: str,
    command: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model, *arguments = shlex.split(command)
    (tmp_path / model).mkdir(parents=True)
    kept = ROOT / "tests/data/public/configs" / KEPT_CONFIGS[model]
    shutil.copy(kept, tmp_path / model / "config.json")
    monkeypatch.chdir(tmp_path)
    assert plan_command.main([model, *arguments]) == 0
    # A directory is named by its last part.
    shown = shown.replace(model, Path(model).name)
    printed = capsys.readouterr().out.replace(model, Path(model).name)
    assert differences(shown, printed) == [], f"docs/{page}: {command}"


def test_examples_of_the_planner_are_found_and_their_figures_are_compared() -> None:
    assert len(planned(ROOT / "docs/planner.md")) > 5
    assert differences("a 1 [...] c", "a 1\nb c") == []
    assert differences("a 2 [...] c", "a 1\nb c") == ["a 2"]
    assert differences("a [...] c [...] b", "a b c") == ["b"]


def test_the_number_of_known_failures_is_right() -> None:
    counted = re.findall(r"(\d+) signatures", (ROOT / "docs/evidence.md").read_text())
    assert set(counted) == {str(len(signatures()))}


def test_the_numbers_of_locked_versions_are_right() -> None:
    page = " ".join((ROOT / "docs/environment.md").read_text().split())
    (counts,) = re.findall(
        r"the same (\d+) versions .* CUDA 12 serves the three Pythons with (\d+)", page
    )
    locks = [ROOT / f"requirements/engine-{name}.txt" for name in ("cuda", "cuda12")]
    locked = [re.findall(r"^[\w.-]+(?:\[.*\])?==", lock.read_text(), re.M) for lock in locks]
    assert [int(count) for count in counts] == [len(names) for names in locked]


def told(options: dict[str, Any]) -> dict[str, Any]:
    """Return of each option what a caller has to know."""
    return {
        name: {
            "type": option.get("type", "str"),
            "required": option.get("required", False),
            **{key: option.get(key) for key in ("default", "choices", "elements")},
        }
        for name, option in options.items()
    }


def documented(path: Path) -> dict[str, Any] | None:
    text = re.search(r'^DOCUMENTATION = r?"""(.*?)"""', path.read_text(), re.M | re.S)
    return None if text is None else yaml.load(text[1], yaml.CSafeLoader).get("options") or {}


@pytest.mark.parametrize(
    "path",
    [
        path
        for folder in ("library", "action_plugins")
        for path in sorted((ROOT / folder).glob("*.py"))
        if documented(path) is not None and "argument_spec=" in path.read_text()
    ],
    ids=lambda path: f"{path.parent.name}/{path.stem}",
)
def test_options_are_documented_as_they_are_taken(path: Path) -> None:
    assert told(taken(path) or {}) == told(documented(path) or {})


@pytest.mark.parametrize(
    "path",
    [path for path in sorted((ROOT / "library").glob("*.py")) if "def main" in path.read_text()],
    ids=lambda path: path.stem,
)
def test_every_module_has_transcripts_with_check_mode_and_a_refusal(path: Path) -> None:
    assert documented(path) is not None
    cases = yaml.safe_load((ROOT / "tests/cases" / f"{path.stem}.yml").read_text())
    assert [case for case in cases if case.get("check")], "no case in check mode"
    assert [case for case in cases if case["result"].get("failed")], "no case that is refused"


def named_tests(document: str) -> list[tuple[str, str]]:
    """Return file and name of each test in the rows of tables; fail for a row without any."""
    found = []
    for line in document.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
        if not line.startswith("|") or cells[-1] == "test" or set(line) <= {"|", "-"}:
            continue
        names = re.findall(r"`(test_\w+)`", cells[-1])
        (file,) = re.findall(r"^`(tests/\S+\.py)`$", cells[-2])
        assert names, line
        found += [(file, name) for name in names]
    return found


def test_whatever_is_said_of_security_has_its_test() -> None:
    named = named_tests((ROOT / "docs/security.md").read_text())
    assert len(named) > 20
    lacking = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert lacking == []


def test_a_sentence_on_security_without_its_test_is_noticed() -> None:
    with pytest.raises(ValueError, match="not enough values"):
        named_tests("| a | nothing |")
    with pytest.raises(AssertionError):
        named_tests("| a | `tests/test_docs.py` | soon |")
