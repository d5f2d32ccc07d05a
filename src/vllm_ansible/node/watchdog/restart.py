"""Start an engine of this host again, of which the watchdog has named why it does not work.

A process of its own, since it runs as the user that may start processes: the watchdog may not. It
acts on the cluster's head alone, where the lock lies that every run of Ansible holds, too. With the
name of an engine it restarts that engine once. Standard library only, Python 3.9.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import http.client
import json
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from .. import launcher
from ..awake import Awake
from ..cluster import lock
from ..engine.ray import ask_nodes, missing
from ..failure import Failure
from ..process import family, process
from ..process.manage import manage
from ..process.process import Files, Look, Spec, Supervisor
from ..process.supervisord import Supervisord
from ..process.systemd import Systemd
from . import ladder, restart_allowed, state_file
from .finding import ENDED, REFUSES
from .ladder import Rung
from .main import say
from .server import complete
from .settings import Server
from .start_silence import Silence

EVERY_SECONDS = 2.0
ANSWER_SECONDS = 60.0
RAY_SECONDS = 120.0
# Ray notices after half a minute that a host is gone; one that is only slow is soon counted again.
LOST_SECONDS = 30.0
MOST_BYTES = 1 << 20
LOG_BYTES = 1 << 18
KEPT_LOGS = 3
KEPT_RESTARTS = 20
UNITS = "/etc/systemd/system"
AUTO = "auto"
# Of such an engine requests may still be answered.
FINISHING = (ENDED, REFUSES, "by hand")
DONE, LEFT, FAILED = 0, 3, 1


class Lost:
    """What a start needs, and has been without for LOST_SECONDS; asked every ten seconds."""

    def __init__(self, lacking: Callable[[], str], clock: Callable[[], float]) -> None:
        self.lacking, self.clock = lacking, clock
        self.asked_at = self.had_at = clock()

    def look(self) -> str:
        """Return what is lacking, empty while it is not known to be."""
        now = self.clock()
        if now - self.asked_at < min(10.0, LOST_SECONDS):
            return ""
        self.asked_at = now
        why = self.lacking()
        if not why:
            self.had_at = now
        return why if now - self.had_at >= LOST_SECONDS else ""


class Held(Exception):
    """The engine is not started again now, with why."""


@dataclass(frozen=True)
class Engine:
    """One engine whose server is on this host; `why` says why it cannot be started from here.

    `processes` in the order of their start. `nodes`: what Ray must count, by host; empty where its
    Ray is started again with it, or where it has none. `rungs`: what its restarts may change, in
    order; `hardware`: what it computes on.
    """

    name: str
    why: str
    processes: tuple[str, ...]
    servers: tuple[Server, ...]
    nodes: Mapping[str, Mapping[str, Any]]
    dashboard_port: int
    rungs: tuple[Rung, ...] = ()
    hardware: str = ""


@dataclass(frozen=True)
class Settings:
    """What the role has written."""

    mode: str
    cluster: str
    cluster_dir: str
    supervisor: str
    supervisor_dir: str
    python: str
    run_dir: str
    state_dir: str
    key_file: str
    ray_token_file: str
    most: int
    within_seconds: float
    start_seconds: float
    silence_seconds: float
    ends_at: float
    engines: tuple[Engine, ...]


def read(path: str) -> Settings:
    """Read the settings that the role has written."""
    with open(path, encoding="utf-8") as handle:
        content = json.load(handle)
    engines = [
        Engine(
            **{
                **one,
                "processes": tuple(one["processes"]),
                "servers": tuple(Server(**server) for server in one["servers"]),
                "rungs": tuple(ladder.rung(rung) for rung in one["rungs"]),
            }
        )
        for one in content.pop("engines")
    ]
    return Settings(**content, engines=tuple(engines))


def untrusted(directory: str, name: str) -> dict[str, Any]:
    """Return the state that a process of the service keeps in its run directory; empty without one.

    Whatever the service has put in its place, no link is followed and nothing waits.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with contextlib.ExitStack() as opened:
            above = os.open(directory, flags | os.O_DIRECTORY)
            opened.callback(os.close, above)
            own = os.open(name, flags | os.O_DIRECTORY, dir_fd=above)
            opened.callback(os.close, own)
            file = os.open("state.json", flags, dir_fd=own)
            handle = opened.enter_context(os.fdopen(file, "rb"))
            if not stat.S_ISREG(os.fstat(file).st_mode):
                return {}
            found = json.loads(handle.read(MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def ray_of(engine: Engine) -> str:
    """Return the name of the process of an engine's Ray node."""
    return f"{engine.name}-ray"


def run(command: list[str]) -> tuple[int, str, str]:
    """Run a command as modules do."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 systemctl
    return done.returncode, done.stdout, done.stderr


class Restarts:
    """The engines of this host, and what has been done for them."""

    def __init__(self, settings: Settings, command: str) -> None:
        self.settings, self.command = settings, command
        self.lock = Path(settings.cluster_dir) / "lock.json"
        self.supervisor: Supervisor = (
            Systemd(settings.cluster, UNITS, run)
            if settings.supervisor == "systemd"
            else Supervisord(settings.cluster_dir, settings.supervisor_dir, settings.python)
        )
        self.said: dict[str, str] = {}
        self.awake = Awake()
        self.awake.start()
        state_file.reserve(settings.state_dir)

    def look(self) -> None:
        """Look once at all engines, and act where that is wanted and allowed."""
        if self.lock.exists():
            # Of a restart by hand that was killed: nobody else would ever remove it.
            with lock.alone(self.lock.parent):
                self._forget_own()
        for engine in self.settings.engines:
            try:
                found = self._cause(engine)
                if found is None:
                    silent = self._silent(engine)
                    self._hold(engine, f"it is not started again: {silent}" if silent else "")
                    continue
                self._allowed(engine)
                if self.settings.mode == AUTO:
                    self.restart(engine, found)
                else:
                    rung = self._rung(engine, found["kind"])[0]
                    way = f" with {rung.says} (cost: {rung.cost})" if rung != ladder.AGAIN else ""
                    told = f"it would be started again{way}: {found['found']}"
                    self._hold(engine, told, f"{self.command} {engine.name}")
            except (Held, Failure) as error:
                self._hold(engine, f"it is not started again: {error}")

    def by_hand(self, engine: Engine) -> int:
        """Restart an engine once, because somebody asks for it; return an exit status."""
        for name in engine.processes:
            if self._look(name)[0] is None:
                raise Held(f"{name} was never started here")
        if why := engine.why or self._unready(engine):
            raise Held(why)
        found = self._cause(engine) or {"kind": "by hand", "found": "asked for by hand"}
        return self.restart(engine, found, anyway=True)

    def _cause(self, engine: Engine) -> Optional[dict[str, Any]]:
        """Return what an engine is to be started again for, None while it works or was stopped."""
        last = (self.kept().get(engine.name, {}).get("restarts") or [{}])[-1]
        state, now = untrusted(self.settings.run_dir, "watchdog"), time.time()
        if not state.get("findings") and not last.get("unanswered"):
            return None
        looks = {name: self._look(name) for name in engine.processes}
        if any(record is None or record.get("stopped") for record, _ in looks.values()):
            return None
        down = [name for name, (_, found) in looks.items() if not found.running]
        since = float(last.get("ended_at", 0.0))
        try:
            # A clock that was set back must not hide what comes after.
            since = since if since <= now else 0.0
            found = restart_allowed.cause(state, engine.name, down, since, now)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise Held(f"the state of the watchdog cannot be read: {error!r}") from error
        if found is None and last.get("unanswered"):
            return self._unanswered(engine, last)
        return found

    def _silent(self, engine: Engine) -> str:
        """Return that the watchdog has ceased to look, of an engine that was not stopped."""
        state = untrusted(self.settings.run_dir, "watchdog")
        try:
            words = restart_allowed.silent(state, time.time())
        except (TypeError, ValueError, OverflowError) as error:
            raise Held(f"the state of the watchdog cannot be read: {error!r}") from error
        if not words:
            return ""
        records = [self._look(name)[0] for name in engine.processes]
        stopped = any(record is None or record.get("stopped") for record in records)
        return "" if stopped else words

    def _unanswered(self, engine: Engine, last: Mapping[str, Any]) -> Optional[dict[str, Any]]:
        """Return that a restart has left it without an answer, which the watchdog never names."""
        if not self._answer(engine):
            return {"kind": "unanswered", "found": f"{engine.name} {last['outcome']}"}
        later = {"unanswered": False, "outcome": f"{last['outcome']}, but later"}
        self._note(engine, {**last, **later})
        return None

    def _allowed(self, engine: Engine) -> None:
        """Raise where a restart is not allowed now, or could not succeed."""
        settings, now = self.settings, time.time()
        restarts = self.kept().get(engine.name, {}).get("restarts", ())
        starts = [float(one["at"]) for one in restarts]
        notices = untrusted(settings.run_dir, "notices")
        need = settings.start_seconds
        why = (
            engine.why
            or restart_allowed.hindered(untrusted(settings.run_dir, "watchdog"), engine.name)
            or restart_allowed.too_often(starts, settings.most, settings.within_seconds, now)
            or restart_allowed.ending(notices, engine.name, settings.ends_at, need, now)
            or self._unready(engine)
        )
        if why:
            raise Held(why)

    def _unready(self, engine: Engine) -> str:
        """Return why a start could not succeed, empty where it may."""
        if isinstance(self.supervisor, Supervisord) and not self.supervisor.daemon.answers():
            # One that is started from here would end with this program.
            return "its supervisord does not run; site.yml starts it"
        why = self._uncounted(engine) if engine.nodes else ""
        return f"{why}; site.yml forms the Ray cluster again" if why else ""

    def _look(self, name: str) -> tuple[Optional[dict[str, Any]], Look]:
        files = Files(self.settings.cluster_dir, name)
        record = process.read_json(files.record)
        return record, self.supervisor.look(files, record)

    # What follows acts.

    def restart(self, engine: Engine, found: Mapping[str, Any], anyway: bool = False) -> int:
        """Stop and start the processes of an engine, wait for its answer, and keep what came."""
        with self._alone(engine) as run_name:
            # A run may have held the lock until now, and started it.
            if not anyway and self._cause(engine) is None:
                return DONE
            self.said.pop(engine.name, None)
            began = time.time()
            rung, why, kept = self._rung(engine, found["kind"])
            way = f" with {rung.says}" if rung != ladder.AGAIN else ""
            say(f"{engine.name}: is started again{way}: {found['found']}")
            entry: dict[str, Any] = {"at": began, "kind": found["kind"], "found": found["found"]}
            entry |= {"rung": rung.name, "changes": rung.says, "cost": rung.cost, "why": why}
            entry["logs"] = self._keep_logs(engine)
            self._note(engine, entry, "it is being started again")
            try:
                climb = (rung, why or str(kept.get("why") or found["kind"]), kept)
                kinds = {found["kind"], found.get("first", found["kind"])}
                self._cycle(engine, run_name, not kinds <= set(FINISHING), climb)
                outcome, code = self._wait(engine, run_name)
            except (Failure, OSError) as error:
                outcome, code = f"could not be started: {error}", FAILED
            if code == DONE:
                self._keep_rung(engine)
            ended = time.time()
            entry |= {"ended_at": ended, "helped": code == DONE, "outcome": outcome}
            entry["unanswered"] = code == LEFT
            say(f"{engine.name}: {outcome}, {ended - began:.0f} s after its restart began")
            self._note(engine, entry, count=True)
            return code

    @contextlib.contextmanager
    def _alone(self, engine: Engine) -> Iterator[str]:
        """Hold the lock of the cluster, as a run of Ansible does; raise Held where one has it."""
        here = lock.holder_of(os.getpid(), getpass.getuser())
        now = time.time()
        name = lock.run_id(f"restart-{engine.name}", here, str(now))
        holder = {**here, "name": f"restart of {engine.name}", "acquired": now, "restarts": True}
        holder["kept_open"] = True
        mine = {"run": name, "holder": holder, "since": now, "renewed": now}
        with contextlib.ExitStack() as opened:
            with lock.alone(self.lock.parent):
                self._forget_own()
                if not lock.take(self.lock, mine):
                    held = lock.read(self.lock) or {}
                    who = held.get("holder") or {}
                    raise Held(
                        f"the run {who.get('name') or held.get('run', '?')} of "
                        f"{who.get('user', '?')}@{who.get('host', '?')} holds the cluster"
                    )
                opened.enter_context(lock.kept_open(self.lock))
            try:
                yield name
            finally:
                with lock.alone(self.lock.parent):
                    if self._holds(name):
                        self.lock.unlink()

    def _holds(self, name: str) -> bool:
        held = lock.read(self.lock)
        return held is not None and held["run"] == name

    def _forget_own(self) -> None:
        """Remove the lock of a restart whose process was killed."""
        held = lock.read(self.lock)
        holder = (held or {}).get("holder") or {}
        here = lock.holder_of(os.getpid(), getpass.getuser())
        ended = lock.over(holder, here)[0] or lock.abandoned(self.lock, here)
        if holder.get("restarts") and ended:
            self.lock.unlink()

    def forget_own(self) -> None:
        """Remove the lock that an earlier start of this program has left, and what it was doing."""
        with lock.alone(self.lock.parent):
            self._forget_own()
        with self._changed() as engines:
            for kept in engines.values():
                for one in kept.get("restarts", ()):
                    if "ended_at" not in one:
                        broken = {"ended_at": time.time(), "helped": False}
                        one.update(broken, outcome="the restart was interrupted")

    def _uncounted(self, engine: Engine) -> str:
        """Return what Ray lacks of the nodes that the engine needs."""
        try:
            token = Path(self.settings.ray_token_file).read_text(encoding="utf-8").strip()
        except OSError as error:
            return f"no Ray token: {error}"
        asked = ask_nodes(engine.dashboard_port, token)
        wanted = {name: dict(one) for name, one in engine.nodes.items()}
        lacking = missing(wanted, asked["nodes"])
        return str(
            asked["error"] or "; ".join(f"Ray on {one['host']}: {one['why']}" for one in lacking)
        )

    def _left(self, run_name: str, files: Files, stopped: bool) -> None:
        """Raise where a run has taken the lock, or somebody has stopped the process meanwhile.

        stopped: that it was stopped already when the restart began, which somebody asked for.
        """
        if not self._holds(run_name):
            raise Failure("it is left to a run that has taken the lock")
        record = process.read_json(files.record)
        if record is None or (record.get("stopped") and not stopped):
            raise Failure(f"{files.name} was stopped or removed meanwhile")

    def _planned(self, engine: Engine, kept: Mapping[str, Any]) -> dict[str, Spec]:
        """Return the servers of an engine as they are planned, whatever rung they start on."""
        found = {}
        for name in engine.processes:
            record = process.read_json(Files(self.settings.cluster_dir, name).record)
            if name != ray_of(engine) and record is not None:
                found[name] = ladder.descended(process.spec(record), kept)
        return found

    def _rung(self, engine: Engine, kind: str) -> tuple[Rung, str, dict[str, Any]]:
        """Return the rung of the next restart, what points to it, and what is kept until now."""
        kept = ladder.read(self.settings.cluster_dir).get(engine.name) or {}
        specs = self._planned(engine, kept)
        if not ladder.holds(kept, specs, engine.hardware):
            kept = {}
        last = (self.kept().get(engine.name, {}).get("restarts") or [{}])[-1]
        if not ladder.goes_on(last, kind, self.settings.within_seconds, time.time()):
            kept = {**kept, "tried": []}
        text = "\n".join(self._tail(name).decode(errors="replace") for name in engine.processes)
        contained = any(spec.cleanup for spec in specs.values())
        rung, why = ladder.choose(engine.rungs, kept, kind, text, contained)
        return rung, why, kept

    def _keep_rung(self, engine: Engine) -> None:
        """Keep that the rung on which an engine has started has helped."""
        kept = ladder.read(self.settings.cluster_dir).get(engine.name)
        if kept is not None:
            ladder.write(self.settings.cluster_dir, engine.name, {**kept, "helped": True})

    def _cycle(
        self,
        engine: Engine,
        run_name: str,
        at_once: bool,
        climb: tuple[Rung, str, Mapping[str, Any]],
    ) -> None:
        """Stop all processes of an engine, then start each as it was planned, in order, on a rung.

        at_once: they are killed first, since they hang and finish nothing that they are given.
        climb: the rung, what points to it, and what was kept before.
        """
        rung, why, kept = climb
        specs = self._planned(engine, kept)
        records = {}
        places = {name: Files(self.settings.cluster_dir, name) for name in engine.processes}
        stopped = {
            name
            for name, files in places.items()
            if (process.read_json(files.record) or {}).get("stopped")
        }
        for name in reversed(engine.processes):
            files = places[name]
            with process.locked(self.settings.cluster_dir):
                self._left(run_name, files, name in stopped)
                records[name] = record = process.read_json(files.record) or {}
                if at_once:
                    members = family.family(files.record, {})
                    launcher.note_shared(files.shared, members)
                    launcher.kill_all(members)
                self.supervisor.stop(files, record, float(record["stop_timeout_seconds"]))
        tried = list(dict.fromkeys([*kept.get("tried", ()), rung.name]))
        fresh = ladder.entry(rung, why, specs, engine.hardware, tried, time.time())
        ladder.write(self.settings.cluster_dir, engine.name, fresh)
        for name in engine.processes:
            record = records[name]
            labels = {key: record[key] for key in ("cluster", "engine", "stop_timeout_seconds")}
            plain = specs.get(name)
            wanted = ladder.climbed(rung, plain) if plain else process.spec(record)
            files = places[name]
            self._left(run_name, files, name in stopped)
            manage(self.supervisor, files, wanted, labels, "started")
            if name == ray_of(engine):
                self._wait_for_ray(engine)

    def _wait_for_ray(self, engine: Engine) -> None:
        """Wait until the Ray that was started has its one node: a server would find none."""
        token_file = Path(self.settings.ray_token_file)
        end = time.monotonic() + RAY_SECONDS
        asked: dict[str, Any] = {}
        while time.monotonic() < end:
            asked = ask_nodes(engine.dashboard_port, token_file.read_text(encoding="utf-8").strip())
            if any(node["alive"] for node in asked["nodes"]):
                return
            time.sleep(1.0)
        raise Failure(f"Ray did not answer within {RAY_SECONDS:g} s: {asked.get('error')}")

    def _wait(self, engine: Engine, run_name: str) -> tuple[str, int]:
        """Wait until every server has answered; return what came of it, and whether it helped."""
        # A machine that was paused is not an engine that did nothing.
        awake = self.awake.now
        end = awake() + self.settings.start_seconds
        silence = Silence(self.settings.cluster_dir, engine.processes)
        lost = Lost(lambda: self._unready(engine), awake)
        while True:
            if not self._holds(run_name):
                return "was left to a run that has taken the lock", FAILED
            for name in engine.processes:
                found = self._look(name)[1]
                if not found.running:
                    return f"did not stay: {process.told(name, found.why)}", FAILED
            if self._answer(engine):
                return "it answers again", DONE
            if awake() > end:
                return f"has not answered within {self.settings.start_seconds:g} s", LEFT
            # A server would wait for the Ray node for as long as it may, and so would each run.
            if why := lost.look():
                return f"cannot answer: {why}", LEFT
            # What loads on other hosts is not seen here.
            silent = silence.look(awake())
            if not engine.nodes and silent > self.settings.silence_seconds:
                return f"has done nothing for {silent:.0f} s, and has not answered", LEFT
            time.sleep(1.0)

    def _answer(self, engine: Engine) -> bool:
        """Tell whether every server answers a question; all at once, as data ranks may need."""

        answered: list[bool] = []

        def ask(server: Server) -> None:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                status, _ = complete(server, self.settings.key_file, "restart", ANSWER_SECONDS)
                answered.append(status < 500)

        # None of them keeps this program from ending.
        asked = [threading.Thread(target=ask, args=(one,), daemon=True) for one in engine.servers]
        for one in asked:
            one.start()
        for one in asked:
            one.join()
        return answered.count(True) == len(engine.servers)

    def _keep_logs(self, engine: Engine) -> str:
        """Copy the end of each log of an engine, as evidence: a start begins them anew."""
        above = os.path.join(self.settings.state_dir, "logs")
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        directory = os.path.join(above, f"{stamp}-{engine.name}")
        os.makedirs(directory, mode=0o700, exist_ok=True)
        for name in engine.processes:
            with contextlib.suppress(OSError):
                Path(directory, f"{name}.log").write_bytes(self._tail(name))
        for old in sorted(os.listdir(above))[:-KEPT_LOGS]:
            shutil.rmtree(os.path.join(above, old), ignore_errors=True)
        return directory

    def _tail(self, name: str) -> bytes:
        """Return the end of the log of a process, empty without one."""
        path = Files(self.settings.cluster_dir, name).log
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as log:
                record = process.read_json(Files(self.settings.cluster_dir, name).record) or {}
                size = os.fstat(descriptor).st_size
                began = int(record.get("log_offset", 0))
                log.seek(max(0, size - LOG_BYTES, began if began <= size else 0))
                return log.read(LOG_BYTES)
        return b""

    # What is kept.

    def kept(self) -> dict[str, Any]:
        """Return what was done for each engine."""
        path = os.path.join(self.settings.state_dir, "state.json")
        return dict((process.read_json(path) or {}).get("engines") or {})

    @contextlib.contextmanager
    def _changed(self) -> Iterator[dict[str, Any]]:
        """Change what is kept, also where a restart by hand does so at the same time."""
        directory, limit = self.settings.state_dir, self.settings
        # Who can open it can hold it, and the service must not keep root waiting.
        flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW
        with os.fdopen(os.open(os.path.join(directory, ".lock"), flags, 0o600), "r+") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            engines = self.kept()
            before = json.dumps(engines)
            yield engines
            if json.dumps(engines) != before:
                limits = {"most": limit.most, "within_seconds": limit.within_seconds}
                state = {"at": time.time(), "mode": limit.mode, **limits, "engines": engines}
                state_file.write(directory, state, lasting=True)

    def _hold(self, engine: Engine, words: str, command: str = "") -> None:
        """Keep why an engine that should be started again is not, and say it once."""
        if self.said.get(engine.name) == words:
            return
        self.said[engine.name] = words
        if words:
            say(f"{engine.name}: {words}" + (f": {command}" if command else ""))
        with self._changed() as engines:
            kept = engines.setdefault(engine.name, {})
            kept["held"], kept["command"] = words, command

    def _note(
        self, engine: Engine, entry: Mapping[str, Any], held: str = "", count: bool = False
    ) -> None:
        """Keep one restart, and how often its kind has helped."""
        with self._changed() as engines:
            kept = engines.setdefault(engine.name, {})
            others = [one for one in kept.get("restarts", ()) if one["at"] != entry["at"]]
            most = max(KEPT_RESTARTS, self.settings.most)
            kept["restarts"] = [*others, dict(entry)][-most:]
            kept["held"], kept["command"] = held, ""
            if count:
                counts = kept.setdefault("counts", {}).setdefault(entry["kind"], [0, 0])
                counts[0] += 1
                counts[1] += bool(entry["helped"])


def main(path: str, engine: str = "") -> int:
    """Look until somebody ends it; or restart one engine once."""
    settings = read(path)
    os.makedirs(settings.state_dir, mode=0o755, exist_ok=True)
    sudo = ["sudo"] if os.geteuid() == 0 else []
    command = shlex.join([*sudo, sys.executable, "-s", "-E", os.path.abspath(sys.argv[0]), path])
    restarts = Restarts(settings, command)
    # What holds the lock must release it, also where the terminal of a restart by hand goes away.
    for one in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, lambda *_: sys.exit(0))
    if engine:
        chosen = [one for one in settings.engines if one.name == engine]
        try:
            return restarts.by_hand(*chosen)
        except (Held, Failure) as error:
            say(f"{engine}: it is not started again: {error}")
            return FAILED
    restarts.forget_own()
    say(f"{settings.mode}: {', '.join(one.name for one in settings.engines)}")
    while True:
        try:
            restarts.look()
        except OSError as error:
            # A full disk, or a table of descriptors that is full: the next look may be better.
            say(f"this look failed: {error}")
        time.sleep(EVERY_SECONDS)
