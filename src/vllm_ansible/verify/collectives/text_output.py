"""Read what nccl-tests and its kin print, through launchers' tags and the logs of other ranks."""

from __future__ import annotations

import re
from collections import Counter

from vllm_ansible.problem import Problem
from vllm_ansible.verify.collectives import table
from vllm_ansible.verify.collectives.report import Report, Row, UnreadableOutput, nccl_version

# mpirun --tag-output writes `[1,0]<stdout>:`, srun --label writes ` 0: `
TAG = re.compile(r"^\s*(?:\[\d+,\d+\]<std(?:out|err)>:\s?|\d+: ?)")
LOGGER = re.compile(r"^(?:\[[^\]]*\]\s*)?([\w.-]+):\d+:\d+ \[-?\d+\] ")
DEVICE = re.compile(r"^#?\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+\s+on\s")
FAILURE = re.compile(r"Test NCCL failure|Test failure|Test CUDA failure|NCCL WARN|Invalid number")
BOUNDS = re.compile(r"Out of bounds values\s*:\s*(\d+)\s+(OK|FAILED)")
AVERAGE = re.compile(r"Avg bus bandwidth\s*:\s*(\S+)")
VERSION = re.compile(r"NCCL version (\S+)")
LIBRARY = re.compile(r"nccl-library=(\d+)")
PROGRAM = re.compile(r"Collective test starting:\s*(\S+)")


def parse(text: str, program: str | None, family: str) -> Report:
    """Return the report of a text; UnreadableOutput where it holds no table or no row."""
    # A last line without its end may be cut inside a number.
    whole, rest = text[: text.rfind("\n") + 1], text[text.rfind("\n") + 1 :]
    lines = [TAG.sub("", line) for line in whole.splitlines()]
    reader = _Reader(lines, family)
    for line in lines:
        reader.take(line)
    reader.finish()
    if table.START.match(TAG.sub("", rest)):
        reader.said.append("the last row is left out: the output ends within it")
    if not reader.rows:
        raise UnreadableOutput(_nothing(lines, family, reader.layout is not None))
    return reader.report(program)


class _Reader:
    """Goes through lines once; holds back a row until its last figure has come."""

    def __init__(self, lines: list[str], family: str) -> None:
        names = {match[1] for line in lines if (match := LOGGER.match(line))}
        self.log = re.compile(
            rf"(?:\[[^\]]*\]\s*)?(?:{'|'.join(map(re.escape, sorted(names, key=len)[::-1]))})"
            r":\d+:\d+ \[-?\d+\] "
            if names
            else r"(?!)"
        )
        self.family = family
        self.layout: table.Layout | None = None
        self.rows: list[Row] = []
        self.said: list[str] = []
        self.held = ""
        self.devices: Counter[tuple[str, str]] = Counter()
        self.devices_cut = False
        self.bounds: list[int] = []
        self.averages: list[float] = []
        self.version: str | None = None
        self.program: str | None = None
        self.tables = 0

    def take(self, line: str) -> None:
        """Take one line."""
        log = self.log.search(line)
        if log is not None:
            self._words(line)
            line = line[: log.start()]
        if table.START.match(line) and self.layout is not None:
            self.finish()
            self.held = line
        elif self.held and table.figures_only(line):
            self.held += " " + line
        elif log is None and line.strip():
            self._words(line)
        if self.held and self.layout is not None:
            row = table.row_of(self.held, self.layout)
            if isinstance(row, Row) and not table.cut(self.held, self.layout):
                self.rows.append(row)
                self.held = ""

    def finish(self) -> None:
        """Take the row that is held back as it is, or say why it is left out."""
        if not self.held or self.layout is None:
            return
        row = table.row_of(self.held, self.layout)
        size = self.held.split()[0]
        if isinstance(row, Row):
            self.rows.append(row)
            if table.cut(self.held, self.layout):
                self.said.append(f"the row of {size} bytes has no figures in place")
        else:
            self.said.append(f"the row of {size} bytes is left out: {row}")
        self.held = ""

    def report(self, program: str | None) -> Report:
        """Return everything that was taken."""
        complete = bool(self.bounds) and len(self.averages) >= self.tables
        if not complete:
            self.said.append("the output ends before its summary: the test was stopped or died")
        if self.devices and max(self.devices.values()) > 1:
            self.said.append(
                f"{max(self.devices.values())} processes are rank 0 each: every one measured "
                f"itself alone, because {self.family} was built without MPI"
            )
        groups = Counter(group for group, _ in self.devices)
        ranks = None if self.devices_cut or not groups else max(groups.values())
        return Report(
            program=program or self.program,
            version=self.version,
            ranks=ranks,
            rows=tuple(self.rows),
            out_of_bounds=sum(self.bounds) if self.bounds else None,
            average_busbw=self.averages[-1] if self.averages else None,
            complete=complete,
            said=tuple(self.said),
        )

    def _words(self, line: str) -> None:
        """Take what a line around the table says."""
        layout = table.layout_of(line)
        if layout is not None:
            self.finish()
            self.layout = layout
            self.tables += 1
        elif self.layout is not None:
            self.layout = table.with_units(self.layout, line)
        if device := DEVICE.match(line):
            self.devices[device[2] or "0", device[1]] += 1
        elif self.devices and line.strip() == "...":
            self.devices_cut = True
        if bounds := BOUNDS.search(line):
            self.finish()
            self.bounds.append(int(bounds[1]) or int(bounds[2] == "FAILED"))
        if (average := AVERAGE.search(line)) and table.NUMBER.fullmatch(average[1]):
            self.averages.append(float(average[1]))
        if version := VERSION.search(line):
            self.version = version[1]
        elif library := LIBRARY.search(line):
            self.version = nccl_version(int(library[1]))
        if program := PROGRAM.search(line):
            self.program = program[1]


def _nothing(lines: list[str], family: str, header: bool) -> Problem:
    """Return the problem of an output without a row."""
    failure = next((line.strip() for line in lines if FAILURE.search(line)), "")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "nothing at all")
    return Problem(
        f"{family} printed {'no row of its table' if header else 'no table'}",
        expected="a line `# size count type ... time algbw busbw` and rows under it",
        found=failure or last,
        fix="run the command by hand on that host and read its first error; NCCL_DEBUG=INFO tells "
        "more",
    )
