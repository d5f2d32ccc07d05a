"""Run library modules as Ansible would, with their commands scripted."""

from __future__ import annotations

import functools
import gc
import json
import os
import resource
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from importlib import import_module
from pathlib import Path
from typing import Any

import ansible.module_utils
import pytest
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.testing import patch_module_args
from hypothesis import HealthCheck, settings
from xdist.scheduler.loadscope import LoadScopeScheduling

from tests import killed, warm
from tests.row_end import OF_ROW
from tests.slurm.lab import SlurmLab, slurm_lab
from vllm_ansible.lab.commands import missing_tools
from vllm_ansible.lab.lab import TOOLS, Lab
from vllm_ansible.lab.paths import DEFAULT_NAME, REPOSITORY

ROOT = Path(__file__).parents[1]
# What `module_utils = src` in ansible.cfg does for a play.
ansible.module_utils.__path__.append(str(ROOT / "src"))

# An example that waits for a processor is no slow one.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# Images often say that Python may write no bytecode; then each worker of each run would rewrite the
# assertions of all tests, half of what it takes to collect them.
sys.dont_write_bytecode = False

# As wide as a console without a terminal: whoever runs the tests may have another.
os.environ["COLUMNS"] = "100"

# Tests that take minutes, most of them spent waiting: each row on one worker, all others beside. A
# test belongs to the first of these that its path begins with.
ROWS = {
    "tests/flows/test_rented.py": "others",
    "tests/flows/test_slurm.py": "others",
    "tests/lab/test_slurm": "others",
    # One process each, beside flows whose engines are several: memory ends before processors do.
    "tests/engine/": "others",
    "tests/flows/": "engines",
    "tests/lab/": "hosts",
    "tests/test_molecule.py": "hosts",
}
# Marks of tests by the fixtures that bring what the mark is about: `make test-unit` needs none.
MARKED = (
    ("tests/enflame/", {"machine"}, "lab"),
    ("tests/unit/node/image/", {"tool"}, "lab"),
    ("tests/engine/", {"engine"}, "engine"),
    ("tests/flows/", {"run"}, "engine"),
    ("tests/unit/", {"play", "shared_play", "site", "aws_site", "project", "checkout"}, "plays"),
    ("tests/unit/", {"browser", "running", "watched", "hold", "make_nodes"}, "plays"),
    ("tests/unit/door/", {"door"}, "plays"),
    ("tests/unit/router/", {"started"}, "plays"),
    ("tests/unit/node/process/", {"host"}, "plays"),
    ("tests/unit/weights/", {"program"}, "plays"),
)
# Files that play without a fixture for it. A single test says so itself, and `Unmarked` which one.
PLAYS = (
    "tests/test_rehearsal.py",
    "tests/unhappy/",
    "tests/unit/actions/test_background_wait.py",
    "tests/unit/benchmark/test_load_teardown.py",
    "tests/unit/bundle/test_checking.py",
    "tests/unit/bundle/test_plays.py",
    "tests/unit/computation/test_stop.py",
    "tests/unit/library/test_self_signed_certificate.py",
    "tests/unit/plan/test_plugins.py",
    "tests/unit/plan/test_readme_inventory.py",
    "tests/unit/plan/test_status.py",
    "tests/unit/provision/test_lost_state.py",
    "tests/unit/record/diagnosis/test_playbook.py",
    "tests/unit/router/test_packages.py",
    "tests/unit/slurm/test_connection.py",
    "tests/unit/slurm/test_inventory.py",
    "tests/unit/slurm/test_teardown.py",
    "tests/unit/sweep/test_point_that_fails.py",
    "tests/unit/test_warm.py",
    "tests/unit/upgrade/test_around_turns.py",
    "tests/unit/upgrade/test_turn_that_fails.py",
)
# What `make test-unit` leaves out.
NO_UNITS = {"plays", "lab", "vm", "engine", "soak"}
# Files whose tests go on, one after the other, with what the first has started.
IN_ORDER = ("tests/unit/router/test_role.py",)


def row(nodeid: str) -> str | None:
    """Return the row that a test belongs to, if any."""
    return next((name for start, name in ROWS.items() if nodeid.startswith(start)), None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from the thousands of tests, which stay to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Start the rows first, and what takes as long as hundreds of others."""
    for item in items:
        for start, fixtures, mark in MARKED:
            if item.nodeid.startswith(start) and fixtures.intersection(item.fixturenames):
                item.add_marker(mark)
        if item.nodeid.startswith(PLAYS):
            item.add_marker("plays")
    long = ("tests/test_lint.py", "tests/enflame/", "tests/unit/node/image/")

    rows = list(dict.fromkeys(ROWS.values()))

    def place(item: pytest.Item) -> tuple[int, str]:
        if name := row(item.nodeid):
            number = rows.index(name) - len(rows)
        elif item.nodeid.startswith(long):
            number = 1
        else:  # the shortest come last, so that all workers end at the same time
            number = 3 - any(item.iter_markers("plays"))
        return number, str(item.path)

    items.sort(key=place)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, None, None]:
    """End with the last test of a row what the row has shared."""
    try:
        return (yield)
    finally:
        if nextitem is None or row(nextitem.nodeid) != row(item.nodeid):
            OF_ROW.close()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Begin in each worker with other files: it finds rewritten what another one has begun with.

    All that begin at once with the same file would rewrite the assertions of each for themselves.
    """
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker and isinstance(collector, pytest.Directory):
        found = list(report.result)
        first = len(found) * int(worker["workerid"][2:]) // worker["workercount"]
        report.result = [*found[first:], *found[:first]]
    return report


class Rows(LoadScopeScheduling):
    """Give each row and each such file to one worker, and every other test to whoever is free."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        if path in IN_ORDER:
            return path
        return row(nodeid) or nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Rows:
    """Schedule by rows."""
    return Rows(config, log)


class Unmarked:
    """Refuses Ansible to a test that `make test-unit` runs: there, each play is a minute of a core.

    What a test starts by way of another program is not seen.
    """

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        start = subprocess.Popen.__init__

        @functools.wraps(start)
        def judged(process: Any, args: Any, *more: Any, **options: Any) -> None:
            if self.item is not None:
                self.judge(self.item, args)
            start(process, args, *more, **options)

        subprocess.Popen.__init__ = judged  # type: ignore[method-assign]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note which test runs."""
        self.item = item
        try:
            return (yield)
        finally:
            self.item = None

    @staticmethod
    def judge(item: pytest.Item, args: Any) -> None:
        """Fail the test that runs, if it may not start this."""
        first = args if isinstance(args, str | bytes | os.PathLike) else args[0]
        program = Path(os.fsdecode(first)).name
        marks = {mark.name for mark in item.iter_markers()}
        if program.startswith("ansible") and marks.isdisjoint(NO_UNITS):
            pytest.fail(f"starts {program}: expected pytest.mark.plays, and so `make test-plays`")


def processor_seconds() -> float:
    """Return what this process and those that it has waited for have used; not containers' own."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used) + warm.used()


class Costs:
    """What each part of the suite takes: on any machine that is shared, only processor time says.

    A worker adds to each report what its test has used; who shows the reports adds them up.
    """

    def __init__(self) -> None:
        self.last = processor_seconds()
        self.processor: Counter[str] = Counter()
        self.wall: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        """Add to the report of each phase of a test what it has used."""
        report = yield
        now = processor_seconds()
        report.processor, self.last = now - self.last, now
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count it for the part that the test belongs to."""
        part = report.nodeid.partition("::")[0].split("/")
        name = "/".join(part[: 3 if part[1] in ("flows", "lab", "engine") else 2])
        # A worker that died reports without.
        self.processor[name] += getattr(report, "processor", 0.0)
        self.wall[name] += report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show the parts, the costliest first."""
        terminalreporter.section("processor seconds by part (without what containers use)")
        for part, used in self.processor.most_common():
            terminalreporter.line(f"{used:8.0f} s of {self.wall[part]:6.0f} s  {part}")


def pytest_configure(config: pytest.Config) -> None:
    """Measure in every run, and begin without what killed ones have left."""
    config.pluginmanager.register(Costs(), "costs")
    config.pluginmanager.register(Unmarked(), "unmarked")
    for words in killed.begin(killed.registry()):
        print(f"Removed what a killed run of the tests left: {words}", file=sys.stderr)
    create = Lab.create

    @functools.wraps(create)
    def recorded(hosts: int = 3, name: str = DEFAULT_NAME, **options: Any) -> Lab:
        killed.remember(lab=[str(options.get("root", REPOSITORY)), name])
        return create(hosts, name, **options)

    Lab.create = recorded  # type: ignore[method-assign,assignment]


def pytest_unconfigure() -> None:
    """Forget this run; one that was ended early leaves nothing of its rows either."""
    OF_ROW.close()
    killed.end()


@pytest.fixture(scope="session", autouse=True)
def directory_of_this_run(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> None:
    """Record where this run keeps its files; each worker has a directory in the run's."""
    base = tmp_path_factory.getbasetemp()
    killed.remember(directory=str(base.parent if hasattr(pytestconfig, "workerinput") else base))


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say in one line under which further Pythons a run of everything runs what runs Ansible."""
    if config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return None
    command = [sys.executable, str(ROOT / "tools/pythons.py")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr.strip()


@pytest.fixture(scope="session")
def real_hosts() -> None:
    """Skip where this machine cannot make hosts, and say what it lacks."""
    if os.geteuid() != 0:
        pytest.skip(f"real hosts need root, this is uid {os.geteuid()}")
    if missing := missing_tools(TOOLS):
        pytest.skip(f"real hosts need {', '.join(missing)}")


@pytest.fixture(scope="session")
def slurm_site(real_hosts: None, tmp_path_factory: pytest.TempPathFactory) -> SlurmLab:
    """Return one Slurm for all files that need a real one: they are of one row and worker."""
    return OF_ROW.enter_context(slurm_lab(tmp_path_factory.mktemp("slurm")))


@pytest.fixture
def run_module(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., dict[str, Any]]:
    """Run one module; each command it runs must be the next of the script."""

    def run(
        name: str, args: dict[str, Any], runs: list[dict[str, Any]], check: bool = False
    ) -> dict[str, Any]:
        script = iter(runs)

        def run_command(self: AnsibleModule, argv: list[str], **_: Any) -> tuple[int, str, str]:
            expected = next(script, None)
            assert expected is not None, f"unexpected command: {argv}"
            assert argv == expected["argv"]
            return expected.get("rc", 0), expected.get("out", ""), expected.get("err", "")

        monkeypatch.setattr(AnsibleModule, "run_command", run_command)
        monkeypatch.setattr(AnsibleModule, "get_bin_path", lambda self, tool, **_: f"/bin/{tool}")
        with patch_module_args({**args, "_ansible_check_mode": check}), pytest.raises(SystemExit):
            import_module(name).main()
        assert next(script, None) is None, "not every scripted command was run"
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run


def python_3_9() -> str | None:
    """Return a Python 3.9, the oldest that a host may have."""
    # A shim of a version manager may be there and have nothing behind it: ask, do not trust names.
    homes = sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    for candidate in [shutil.which("python3.9"), *map(str, homes)]:
        if candidate and _version(candidate).startswith("Python 3.9."):
            return candidate
    return None


def _version(python: str) -> str:
    found = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    return found.stdout


@pytest.fixture(scope="session", params=["this Python", "Python 3.9"])
def node_python(request: pytest.FixtureRequest) -> str:
    """Return each Python that node code is run with: the controller's, and the oldest of hosts."""
    if request.param == "this Python":
        return sys.executable
    python = python_3_9()
    if python is None:
        pytest.skip("no Python 3.9 on this machine to run node code with")
    return python
