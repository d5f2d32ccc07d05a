"""Run one recorded process for a supervisor and leave no descendant behind when it ends.

This file is copied to the host and run by itself, so it imports nothing of ours. What the process
prints of the cluster's secrets does not reach its log.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import re
import resource
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Optional

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Without it setproctitle (Ray, vLLM) overwrites what /proc/PID/environ shows, marker included.
KEEP_ENVIRON_READABLE = {"SPT_NOENV": "1"}
MARKER = "VLLM_ANSIBLE_PROCESS"
CLEAN_SECONDS = 20.0
# How often what a process shares is looked up: most of it is made while it starts.
FIRST_NOTE_SECONDS, LAST_NOTE_SECONDS = 1.0, 300.0
# A door writes some 250 bytes for each request. As much again is kept beside it.
MOST_LOG_BYTES = 256 * 1024**2
SHARED_DIR = "/dev/shm"  # noqa: S108 where the C library has it
# Of Python, NCCL, PyTorch, vLLM on CPUs and Ray; a file of another name there may be meant to last.
SHARED_NAMES = re.compile(r"(psm_|nccl-|torch_|vllm_dist_|sem\.(mp-|hdr\d|obj\d))[^/]*")
ASKED_TO_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# `max_tokens` and `output_tokens_per_second` are figures, `hf_token` is none; a name that ends in
# `_path` says where a secret lies.
NAME_OF_SECRET = (
    r"[\w.\-]*"  # noqa: S105 a pattern of names
    r"(?:(?:api|private|access|secret)[_-]?key|token|secret|passw(?:or)?d|_pass|passphrase)"
)
# Shorter words stand in texts that are no secret.
SHORTEST_SECRET = 8
SECRET_FILE_BYTES = 65536
HIDDEN = "<hidden>"
CHUNK_BYTES = 65536
REVIVE_SECONDS = 0.2
# How long the last words of a process may take to its log once it has ended.
DRAIN_SECONDS = 5.0


class Stat(NamedTuple):
    """What /proc/PID/stat says about one process."""

    state: str
    parent: int
    session: int
    start_time: int


def stat_of(pid: int) -> Optional[Stat]:
    """Return the facts of a process, or None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as handle:
            # The command name may hold spaces and brackets: only what follows it is fixed.
            fields = handle.read().rpartition(")")[2].split()
    except OSError:
        return None
    return Stat(fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def alive(pid: Optional[int], start_time: Optional[int]) -> bool:
    """Tell whether exactly this process, not a later one with its number, still runs."""
    found = stat_of(pid) if pid else None
    return found is not None and found.start_time == start_time and found.state not in "ZX"


def identity(pid: int) -> dict[str, Optional[int]]:
    """Return what is recorded to recognise a process later."""
    found = stat_of(pid)
    return {"pid": pid, "start_time": found.start_time if found else None}


def boot_id() -> str:
    """Return the identity of this boot of the host."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
        return handle.read().strip()


def process_table() -> dict[int, Stat]:
    """Return every living process by its number."""
    table = {}
    for entry in os.listdir("/proc"):
        found = stat_of(int(entry)) if entry.isdigit() else None
        if found is not None and found.state not in "ZX":
            table[int(entry)] = found
    return table


def descendants(roots: set[int], table: dict[int, Stat]) -> set[int]:
    """Return every process below the given ones."""
    children: dict[int, list[int]] = {}
    for pid, found in table.items():
        children.setdefault(found.parent, []).append(pid)
    result: set[int] = set()
    queue = list(roots)
    while queue:
        below = [pid for pid in children.get(queue.pop(), []) if pid not in result]
        result.update(below)
        queue += below
    return result


def mapped(pids: Iterable[int]) -> set[tuple[str, int]]:
    """Return device and inode of the shared memory that processes have mapped.

    A semaphore is mapped under a name that is gone by the time it has its own.
    """
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as lines:
            for line in lines:
                if f" {SHARED_DIR}/".encode() in line:
                    words = line.split(None, 5)
                    found.add((words[3].decode(), int(words[4])))
    return found


def shared_files() -> dict[str, tuple[str, int, int]]:
    """Return device, inode and owner of the shared memory that libraries have named."""
    found = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(SHARED_DIR):
            with contextlib.suppress(OSError):
                one = entry.stat(follow_symlinks=False)
                if SHARED_NAMES.fullmatch(entry.name) and stat.S_ISREG(one.st_mode):
                    device = f"{os.major(one.st_dev):02x}:{os.minor(one.st_dev):02x}"
                    found[entry.name] = (device, one.st_ino, one.st_uid)
    return found


def read_notes(path: str) -> dict[str, tuple[str, int, int]]:
    """Return the shared memory that was noted, by name; nothing where none was."""
    try:
        with open(path, encoding="utf-8") as handle:
            return {name: (one[0], one[1], one[2]) for name, one in json.load(handle).items()}
    except (OSError, ValueError, AttributeError, LookupError, TypeError):
        return {}


def note_shared(path: str, pids: set[int]) -> None:
    """Note the shared memory that belongs to the owners of processes and that they have mapped.

    After a kill nothing else tells whose it was: the file has a random name, and its user may have
    other programs.
    """
    files = shared_files()
    owners = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            owners.add(os.stat(f"/proc/{pid}").st_uid)
    held, known = mapped(pids), read_notes(path)
    found = {
        name: one
        for name, one in files.items()
        if known.get(name) == one or (one[:2] in held and one[2] in owners)
    }
    if found != known:
        write_json(path, found)


def sweep_shared(paths: Iterable[str], owner: Optional[int] = None) -> None:
    """Remove shared memory that was noted, or is of an owner, once nobody has it mapped."""
    notes = {path: read_notes(path) for path in paths}
    files = shared_files()
    ours = {
        name: one
        for name, one in files.items()
        if one[2] == owner or any(known.get(name) == one for known in notes.values())
    }
    held = mapped(process_table()) if ours else set()
    kept = {name: one for name, one in ours.items() if one[:2] in held}
    for name in ours.keys() - kept.keys():
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(SHARED_DIR, name))
    for path, known in notes.items():
        left = {name: one for name, one in known.items() if kept.get(name) == one}
        if left and left != known:
            write_json(path, left)
        elif not left:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)


def write_json(path: str, value: Any, mode: int = 0o600, lasting: bool = False) -> None:
    """Replace a file in one step, so that a reader never sees half of it.

    lasting: nor after a power failure, which takes a write to the disk.
    """
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            os.fchmod(stream.fileno(), mode)
            json.dump(value, stream, indent=1, sort_keys=True)
            if lasting:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def prctl(option: int, value: int) -> None:
    """Set one attribute of the calling process."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def become_subreaper() -> None:
    """Make orphaned descendants ours instead of init's."""
    prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """End the calling process when its parent is killed; call it after any change of user."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def become(user: Optional[str]) -> None:
    """Take on another user's identity, which only root can."""
    if user and os.geteuid() == 0 and user != "root":
        entry = pwd.getpwnam(user)
        os.initgroups(user, entry.pw_gid)
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)


def exit_status(status: int) -> int:
    """Turn a wait status into what a shell would report."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def reap() -> dict[int, int]:
    """Collect children that have ended, without waiting."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = exit_status(status)
    return ended


def kill_all(pids: set[int]) -> None:
    """Kill processes that may already be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def kill_descendants(spared: int = 0) -> None:
    """Kill everything below this subreaper but one child, and wait until it is gone."""
    while True:
        left = descendants({os.getpid()}, process_table()) - {spared}
        kill_all(left)
        if spared and not left:
            return
        try:
            ended = os.waitpid(-1, 0)[0]
        except ChildProcessError:
            return
        spared = 0 if ended == spared else spared


def set_limits(limits: dict[str, Any]) -> list[str]:
    """Set resource limits and return a sentence for each that had to stay lower."""
    kinds = {"nofile": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK}
    lowered = []
    for name, wanted in sorted(limits.items()):
        if wanted is None:
            continue
        value = resource.RLIM_INFINITY if str(wanted) == "infinity" else int(wanted)
        try:
            resource.setrlimit(kinds[name], (value, value))
        except (ValueError, OSError):
            hard = resource.getrlimit(kinds[name])[1]
            resource.setrlimit(kinds[name], (hard, hard))
            lowered.append(f"limit {name} stays at {hard}, {wanted} was wanted: not permitted here")
    return lowered


def secret_words(text: str) -> set[str]:
    """Return the secrets of a file: its one word, or what has the name of a secret."""
    found = {text.strip()} if len(text.split()) == 1 else set()
    for line in text.splitlines():
        name, _, value = re.sub(r"\s*[=:]\s*", "=", line.strip(), count=1).partition("=")
        if re.fullmatch(NAME_OF_SECRET, name.strip("\"' "), re.IGNORECASE):
            found.add(value.strip("\"', "))
    return {word for word in found if len(word) >= SHORTEST_SECRET}


def read_secrets(directory: str) -> tuple[set[str], list[str]]:
    """Return the secrets that lie in a directory, and what there could not be read."""
    words: set[str] = set()
    unread = []
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return words, []
    except OSError:
        return words, [directory]
    for name in names:
        path = os.path.join(directory, name)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                words |= secret_words(file.read(SECRET_FILE_BYTES).decode("utf-8", "replace"))
        except OSError:
            unread.append(path)
    return words, unread


class Hiding:
    """Secrets, and how they are taken out of what comes in pieces."""

    def __init__(self, words: Iterable[str]) -> None:
        # As it is, and as Python and JSON print it within quotes.
        forms = {
            form for word in words for form in (word, repr(word)[1:-1], json.dumps(word)[1:-1])
        }
        self.forms = sorted((form.encode() for form in forms), key=len, reverse=True)
        self.pattern = re.compile(b"|".join(re.escape(form) for form in self.forms) or b"(?!)")

    def split(self, data: bytes, last: bool = False) -> tuple[bytes, bytes]:
        """Return what may be written, and the end that may be the begin of a secret."""
        at = 0
        parts: list[bytes] = []
        while True:
            begun = len(data) if last else self.begun(data, at)
            found = self.pattern.search(data, at)
            if found is None or found.start() >= begun:
                return b"".join([*parts, data[at:begun]]), data[begun:]
            parts += [data[at : found.start()], HIDDEN.encode()]
            at = found.end()

    def begun(self, data: bytes, at: int) -> int:
        """Return where a secret begins that the data ends within; the end of it where none does."""
        longest = len(self.forms[0]) if self.forms else 1
        for place in range(max(at, len(data) - longest + 1), len(data)):
            rest = data[place:]
            if any(len(rest) < len(form) and form.startswith(rest) for form in self.forms):
                return place
        return len(data)


def write_all(target: int, data: bytes) -> None:
    """Write all of it; where the disk is full it is lost, for whoever prints must not wait."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(target, data) :]


def copy_hiding(source: int, target: int, directory: str) -> None:
    """Copy what comes until nobody can write any more, without the secrets of a directory."""
    words, unread = read_secrets(directory)
    for path in unread:
        told = f"{path} cannot be read here: what is printed of it is not hidden in this log\n"
        write_all(target, told.encode())
    hiding, held = Hiding(words), b""
    while True:
        data = os.read(source, CHUNK_BYTES)
        text, held = hiding.split(held + data, last=not data)
        write_all(target, text)
        if not data:
            return


def secrets_of(directory: str) -> str:
    """Return where the secrets of a cluster lie on a host."""
    return os.path.join(directory, "secrets")


def copied(source: int, target: int, done: int) -> int:
    """Copy a file from a byte on to its end, and return where that was."""
    while sent := os.sendfile(target, source, done, CHUNK_BYTES * 16):
        done += sent
    return done


def begin_anew(log: int, path: str, most: int) -> int:
    """Keep what a log holds as `path.1` and empty it where it is larger than this.

    Return at which size to look again. Whoever has it open to append goes on at its beginning. What
    is printed between the last piece of the copy and the cut, microseconds, is lost.
    """
    size = os.fstat(log).st_size
    if size <= most:
        return most
    directory, name = os.path.split(path)
    try:
        target, made = tempfile.mkstemp(dir=directory, prefix=f".{name}.")
    except OSError:
        return size + most
    try:
        source = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if os.fstat(source).st_ino != os.fstat(log).st_ino:
                raise FileNotFoundError(path)
            os.fchmod(target, stat.S_IMODE(os.fstat(log).st_mode))
            done = copied(source, target, 0)
            os.replace(made, f"{path}.1")
            copied(source, target, done)
            os.ftruncate(log, 0)
        finally:
            os.close(source)
    except OSError:
        # As on a full disk: what is there stays as it is.
        with contextlib.suppress(OSError):
            os.unlink(made)
        return size + most
    finally:
        os.close(target)
    return most


class Output:
    """Where a process writes: into its log, through a filter where the cluster has secrets.

    The filter is a process of its own, since its last words come when the process is gone; it ends
    with the last that could write.
    """

    def __init__(self, log: int, directory: str, user: Optional[str]) -> None:
        self.log, self.directory, self.user = log, secrets_of(directory), user
        self.reader = self.pid = 0
        self.writer = log
        if os.path.isdir(self.directory):
            self.reader, self.writer = os.pipe()
            self.start()

    def start(self) -> None:
        """Start the filter."""
        self.pid = os.fork()
        if self.pid:
            return
        try:
            os.setsid()
            # Of all descriptors of the launcher it keeps the two that it needs.
            for descriptor in range(3):
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            os.close(self.writer)
            become(self.user)
            copy_hiding(self.reader, self.log, self.directory)
        finally:
            os._exit(0)

    def revive(self, ended: Iterable[int]) -> None:
        """Start the filter again where it was killed: nobody would read what is printed."""
        if self.pid and self.pid in ended:
            # What ends at once, again and again, must not take a processor.
            time.sleep(REVIVE_SECONDS)
            self.start()

    def close(self, seconds: float) -> None:
        """Wait until the last words are in the log, but not for who else can still write."""
        if not self.pid:
            return
        os.close(self.writer)
        deadline = time.monotonic() + seconds
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
                left = deadline - time.monotonic()
                if left <= 0:
                    kill_all({self.pid})
                    os.waitpid(self.pid, 0)
                    return
                signal.sigtimedwait({signal.SIGCHLD}, left)


def spawn(record: dict[str, Any], log: int) -> tuple[int, Optional[str]]:
    """Start the recorded command and return its number and why it could not start, if so."""
    reader, writer = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8", errors="replace") as stream:
            return pid, stream.read() or None
    try:
        os.setsid()
        become(record["user"])
        die_with_parent(parent)
        os.chdir(record["directory"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # Python ignores these two; a program expects the defaults.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execvpe(record["argv"][0], record["argv"], record["full_environment"])  # noqa: S606 argv, no shell
    except BaseException as error:
        os.write(writer, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(127)


def clean(record: dict[str, Any], output: Output) -> None:
    """Run what removes things outside the process; that nothing is there is no failure.

    A wish to stop is left for what comes next, and what hangs is killed in time.
    """
    command = record.get("cleanup")
    if not command:
        return
    cleaner, _ = spawn({**record, "argv": command}, output.writer)
    deadline = time.monotonic() + CLEAN_SECONDS
    while cleaner not in (ended := reap()):
        output.revive(ended)
        left = deadline - time.monotonic()
        if left <= 0:
            kill_all({cleaner})
            left = 1.0
        signal.sigtimedwait({signal.SIGCHLD}, left)


def follow(
    pid: int, stop_seconds: float, note: Callable[[], None], output: Output, log_path: str
) -> int:
    """Wait for the process, pass on a wish to stop, and return its exit status."""
    deadline: Optional[float] = None
    pause = FIRST_NOTE_SECONDS
    # Not from each signal on: those of orphans may come all the time.
    due = time.monotonic() + pause
    most = MOST_LOG_BYTES
    while True:
        ended = reap()
        output.revive(ended)
        if pid in ended:
            return ended[pid]
        waiting = {signal.SIGCHLD, *ASKED_TO_STOP}
        until = due if deadline is None else deadline
        received = signal.sigtimedwait(waiting, max(0.0, until - time.monotonic()))
        if received is None and deadline is not None:
            kill_all({pid})
            deadline = None
        elif received is None:
            note()
            most = begin_anew(output.log, log_path, most)
            pause = min(2 * pause, LAST_NOTE_SECONDS)
            due = time.monotonic() + pause
        elif received.si_signo in ASKED_TO_STOP:
            note()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            deadline = deadline or time.monotonic() + stop_seconds


def main(path: str) -> int:
    """Run the record at this path to its end."""
    with open(path, encoding="utf-8") as handle:
        record = json.load(handle)
    state_path = record["state_path"]
    shared_path = f"{state_path}.shared"
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *ASKED_TO_STOP})
    become_subreaper()
    log = os.open(record["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
    state: dict[str, Any] = {
        "instance": record["instance"],
        "boot_id": boot_id(),
        "launcher": identity(os.getpid()),
        "started_at": time.time(),
        "lowered_limits": set_limits(record["limits"]),
    }

    def note() -> None:
        note_shared(shared_path, descendants({os.getpid()}, process_table()))

    output = Output(log, record["directory"], record["user"])
    clean(record, output)
    sweep_shared([shared_path])
    pid, error = spawn(record, output.writer)
    state["process"] = identity(pid)
    state["error"] = error
    write_json(state_path, state)
    status = follow(pid, record["stop_timeout_seconds"], note, output, record["log"])
    note()
    kill_descendants(spared=output.pid)
    sweep_shared([shared_path])
    clean(record, output)
    output.close(DRAIN_SECONDS)
    write_json(state_path, {**state, "exit_status": status, "ended_at": time.time()})
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
