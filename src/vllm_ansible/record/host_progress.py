"""One line for many hosts: what each reports, added up by whichever worker holds the pen."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from .. import terminal as console
from .progress import Progress

RATE_WINDOW_SECONDS = 30.0
_BAR = re.compile(r"\b(\d+)/(\d+) \[")


def of_bar(text: str, unit: str) -> dict[str, Any]:
    """Return the count in a progress bar of tqdm, and nothing of any other line."""
    found = _BAR.search(text)
    return {"done": int(found[1]), "total": int(found[2]), "unit": unit} if found else {}


# A rate measured over less than this jumps too much to be worth printing.
RATE_MINIMUM_SECONDS = 3.0


@dataclass(frozen=True)
class HostProgress:
    """How far one host is; numbers are None when nobody knows them."""

    host: str
    done: float | None = None
    total: float | None = None
    unit: str = ""
    text: str = ""
    finished: bool = False

    @property
    def share(self) -> float:
        """Return the part that is done, between 0 and 1."""
        if self.finished:
            return 1.0
        return min((self.done or 0.0) / self.total, 1.0) if self.total else 0.0


@dataclass(frozen=True)
class ClusterProgress:
    """How far all hosts are together."""

    hosts: int
    finished: int
    done: float | None
    total: float | None
    unit: str
    slowest: HostProgress | None


def add_up(reports: Sequence[HostProgress], hosts: Sequence[str]) -> ClusterProgress:
    """Add up what the hosts report, in the unit that most of them use.

    A host that has not reported yet counts as not finished.
    """
    known = {report.host: report for report in reports if report.host in hosts}
    units = Counter(report.unit for report in known.values() if report.done is not None)
    unit = units.most_common(1)[0][0] if units else ""
    counted = [one for one in known.values() if one.done is not None and one.unit == unit]
    totals = [one.total for one in counted if one.total is not None]
    unfinished = [known.get(host, HostProgress(host)) for host in hosts]
    unfinished = [one for one in unfinished if not one.finished]
    return ClusterProgress(
        hosts=len(hosts),
        finished=len(hosts) - len(unfinished),
        done=sum(one.done or 0.0 for one in counted) if counted else None,
        total=sum(totals) if totals and len(totals) == len(counted) else None,
        unit=unit,
        slowest=min(unfinished, key=lambda one: one.share) if unfinished else None,
    )


def describe(cluster: ClusterProgress, rate: float | None) -> str:
    """Say in words what the numbers of the line do not: who is behind, how fast, how long."""
    parts = []
    if cluster.hosts > 1:
        parts.append(f"{cluster.finished} of {cluster.hosts} hosts done")
    slowest = cluster.slowest
    if slowest is not None:
        if cluster.hosts == 1:
            parts.append(slowest.text)
        elif slowest.total:
            parts.append(f"slowest {slowest.host} ({slowest.share:.0%})")
        else:
            parts.append(f"{slowest.host}: {slowest.text or 'not started'}")
    if rate:
        parts.append(f"{console.amount(rate, cluster.unit)}/s")
        if cluster.total is not None and cluster.done is not None and cluster.total > cluster.done:
            parts.append(f"{console.duration((cluster.total - cluster.done) / rate)} left")
    return ", ".join(part for part in parts if part)


class Rate:
    """The rate of a sum over the last moments."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def add(self, now: float, done: float | None) -> float | None:
        """Note a value and return the rate, or None while it is not known."""
        if done is None or (self._seen and done < self._seen[-1][1]):
            self._seen.clear()
        if done is None:
            return None
        self._seen.append((now, done))
        while now - self._seen[0][0] > RATE_WINDOW_SECONDS:
            self._seen.popleft()
        began, first = self._seen[0]
        if now - began < RATE_MINIMUM_SECONDS or done <= first:
            return None
        return (done - first) / (now - began)


class Silence:
    """How long something has not moved, by the clock of the one who watches."""

    def __init__(self, allowed_seconds: float, now: float) -> None:
        self.allowed_seconds = allowed_seconds
        self._signature: Any = None
        self._moved_at = now

    def observe(self, signature: Any, now: float) -> float:
        """Note what was seen and return the seconds since it last differed."""
        if signature != self._signature:
            self._signature, self._moved_at = signature, now
        return now - self._moved_at

    def broken(self, now: float) -> bool:
        """Tell whether the silence has lasted too long."""
        return now - self._moved_at > self.allowed_seconds


class Growth:
    """How often a count was seen to have grown, by looks that may come seldom.

    The first look says nothing of growth. A count that falls, since one of those that are counted
    has ended, is a new beginning.
    """

    def __init__(self) -> None:
        self.times = 0
        self._count: int | None = None

    @property
    def known(self) -> bool:
        """Whether it was looked at."""
        return self._count is not None

    def add(self, count: int | None) -> int:
        """Note a count, None where it was not looked at, and return how often it has grown."""
        if count is not None:
            self.times += self._count is not None and count > self._count
            self._count = count
        return self.times


class ClusterLine:
    """The progress line that the workers of all hosts write together.

    Each worker keeps its host's report in a file. The first to take the lock prints the sum; when
    its host has finished, another takes over, so that no host has to stay for the others.
    """

    def __init__(
        self,
        directory: str | Path,
        label: str,
        hosts: Sequence[str],
        display: Any,
        stage: str = "",
        key: str = "",
    ) -> None:
        self._directory = Path(directory) / "progress" / quote(label, safe="")
        self._hosts = list(hosts)
        self._key = key  # tells this task's reports from those of an earlier one with the label
        self._line = Progress(display, stage or label, label)
        self._rate = Rate()
        self._pen: IO[str] | None = None
        self._inherited = ""
        self._finished = 0  # hosts, when this worker printed last

    def report(
        self,
        host: str,
        done: float | None = None,
        total: float | None = None,
        unit: str = "",
        text: str = "",
        finished: bool = False,
    ) -> None:
        """Note how far one host is, and print the line when it is ours to print."""
        own = HostProgress(host, done, total, unit, text, finished)
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{quote(host, safe='')}.json"
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps({"key": self._key, **asdict(own)}), encoding="utf-8")
        temporary.replace(path)
        if self._holds_pen():
            self._print()
        if finished:
            printed = self._pen is not None
            self.close()
            # Another one may have finished before that, and could not print.
            if printed and self._holds_pen():
                if add_up(self._reports(), self._hosts).finished != self._finished:
                    self._print()
                self.close()

    def close(self) -> None:
        """Let another worker print."""
        if self._pen is not None:
            self._pen.close()
            self._pen = None

    def _holds_pen(self) -> bool:
        if self._pen is None:
            pen = (self._directory / ".pen").open("a+", encoding="utf-8")
            try:
                fcntl.flock(pen, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                pen.close()
                return False
            pen.seek(0)
            self._inherited = pen.read()
            self._pen = pen
        return True

    def _print(self) -> None:
        cluster = add_up(self._reports(), self._hosts)
        self._finished = cluster.finished
        text = describe(cluster, self._rate.add(time.monotonic(), cluster.done))
        said = json.dumps([self._key, text, cluster.done, cluster.total])
        # Who takes over does not repeat what the one before said last.
        if said == self._inherited or self._pen is None:
            return
        if not text and cluster.done is None:
            return
        self._inherited = ""
        self._pen.truncate(0)
        self._pen.write(said)
        self._pen.flush()
        phase = str(cluster.finished)
        self._line.show(text, cluster.done, cluster.total, cluster.unit, phase=phase)

    def _reports(self) -> list[HostProgress]:
        found = []
        for path in self._directory.glob("*.json"):
            with suppress(OSError, ValueError):
                report = json.loads(path.read_text(encoding="utf-8"))
                if report.pop("key") == self._key:
                    found.append(HostProgress(**report))
        return found
