"""Run commands inside the own step of a job that holds this node, for whoever the job belongs to.

What a step of `srun` leaves behind is killed when the step ends. So the step of a connection only
carries bytes, and this program, which is the step that lasts as long as the job, starts what they
ask for. It comes as text over standard input, in one with drain.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Callable, Optional

from .drain import drain, there, wait_until

# Channel, kind, bytes of the payload; a line's end follows it, for srun sends whole lines on.
HEADER = struct.Struct("!IBI")
OPEN, INPUT, END, CLOSE, OUTPUT, ERRORS, EXIT = range(7)
# That so many bytes arrived where they were to go; 7 and 8 never leave the controller.
TAKEN = 9
COUNT = struct.Struct("!I")
CHUNK_BYTES = 32768
# Of one command, each way, on their way: what is slow, or stopped, waits for itself alone.
WINDOW_BYTES = 1 << 20
CREDENTIALS = struct.Struct("3i")
PR_SET_CHILD_SUBREAPER = 36
REAP_SECONDS = 0.2
# Children that somebody here waits for.
COMMANDS: set[int] = set()
COMMANDS_LOCK = threading.Lock()


def pack(channel: int, kind: int, payload: bytes = b"") -> bytes:
    """Return one frame as bytes."""
    return HEADER.pack(channel, kind, len(payload)) + payload + b"\n"


def frames(read: Callable[[int], bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Return channel, kind and payload of each frame until the stream ends.

    `read` returns as many bytes as asked for, fewer only at the end.
    """
    while len(head := read(HEADER.size)) == HEADER.size:
        channel, kind, size = HEADER.unpack(head)
        payload = read(size + 1)
        if len(payload) <= size:
            return
        yield channel, kind, payload[:-1]


class Window:
    """How many bytes may still be sent before some of them were taken."""

    def __init__(self) -> None:
        self._left, self._closed = WINDOW_BYTES, False
        self._changed = threading.Condition()

    def use(self, size: int) -> None:
        """Wait until something may be sent, and count it."""
        with self._changed:
            self._changed.wait_for(lambda: self._left > 0 or self._closed)
            self._left -= size

    def taken(self, count: bytes) -> None:
        """Let as many bytes follow as were taken."""
        with self._changed:
            self._left += COUNT.unpack(count)[0]
            self._changed.notify_all()

    def close(self) -> None:
        """Let nobody wait: nobody takes anything any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def address(job: str) -> str:
    """Return where the agent of a job listens: a name that needs no file and leaves none."""
    return f"\0vllm-ansible-slurm-{os.getuid()}-{job}"


def is_ours(connection: socket.socket) -> bool:
    """Tell whether the other end of a local socket is a process of this user."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return bool(CREDENTIALS.unpack(found)[1] == os.getuid())


class Command:
    """One command that was asked for; its output is sent as it comes."""

    def __init__(self, argv: list[str], send: Callable[[int, bytes], None]) -> None:
        self._send = send
        self.window = Window()
        self._input: queue.SimpleQueue[Optional[bytes]] = queue.SimpleQueue()
        with COMMANDS_LOCK:
            self._process = subprocess.Popen(  # noqa: S603  argv of the job's own user, no shell
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=os.path.expanduser("~"),
                start_new_session=True,
            )
            COMMANDS.add(self._process.pid)
        for body in (self._feed, self._run):
            threading.Thread(target=body, daemon=True).start()

    def give(self, data: Optional[bytes]) -> None:
        """Hand on input; None ends it."""
        self._input.put(data)

    def hang_up(self) -> None:
        """End the command, for nobody listens any more; what it detached stays."""
        self.give(None)
        self.window.close()
        with contextlib.suppress(ProcessLookupError):
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGHUP)

    def _feed(self) -> None:
        stream: Any = self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            while (data := self._input.get()) is not None:
                stream.write(data)
                stream.flush()
                self._send(TAKEN, COUNT.pack(len(data)))
        with contextlib.suppress(BrokenPipeError):
            stream.close()

    def _run(self) -> None:
        errors = threading.Thread(
            target=self._pass_on, args=(self._process.stderr, ERRORS), daemon=True
        )
        errors.start()
        self._pass_on(self._process.stdout, OUTPUT)
        errors.join()
        status = self._process.wait()
        COMMANDS.discard(self._process.pid)
        # As a shell tells it.
        told = status if status >= 0 else 128 - status
        self._send(EXIT, json.dumps({"status": told}).encode())

    def _pass_on(self, stream: Any, kind: int) -> None:
        while data := stream.read1(CHUNK_BYTES):
            self.window.use(len(data))
            self._send(kind, data)


def serve(connection: socket.socket) -> None:
    """Run what one connection asks for until it ends."""
    commands: dict[int, Command] = {}
    lock = threading.Lock()

    def sender(channel: int) -> Callable[[int, bytes], None]:
        def send(kind: int, payload: bytes) -> None:
            # Whoever asked may be gone; the command hears of it by itself.
            with lock, contextlib.suppress(OSError):
                connection.sendall(pack(channel, kind, payload))

        return send

    with connection, connection.makefile("rb") as stream:
        for channel, kind, payload in frames(stream.read):
            if kind == OPEN:
                send = sender(channel)
                try:
                    commands[channel] = Command(json.loads(payload)["argv"], send)
                except OSError as error:
                    send(ERRORS, f"{error}\n".encode())
                    send(EXIT, json.dumps({"status": 127}).encode())
            elif channel in commands:
                if kind == TAKEN:
                    commands[channel].window.taken(payload)
                elif kind == CLOSE:
                    commands.pop(channel).hang_up()
                else:
                    commands[channel].give(payload if kind == INPUT else None)
        for command in commands.values():
            command.hang_up()


def listen(job: str) -> socket.socket:
    """Return the socket of this job's agent."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(address(job))
    server.listen(64)
    return server


def adopt() -> None:
    """Have what is detached below this process stay below it, so that it is known by descent."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    threading.Thread(target=_reap, daemon=True).start()


def _reap() -> None:
    """Bury what was adopted; the ends of commands are for those who wait for them."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            ended = None
        if ended is None or ended.si_pid in COMMANDS:
            time.sleep(REAP_SECONDS)
        # One that somebody waits for may stay for long, and hides those behind it.
        with contextlib.suppress(ChildProcessError), COMMANDS_LOCK:
            for child in _children().get(os.getpid(), []) if ended else []:
                if child not in COMMANDS:
                    os.waitpid(child, os.WNOHANG)


def _children() -> dict[int, list[int]]:
    """Return the children of every process by its number."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
                found.setdefault(parent, []).append(int(entry))
    return found


def descendants() -> list[int]:
    """Return every process that was started from here, however it detached itself."""
    children, found = _children(), [os.getpid()]
    for process in found:
        found.extend(children.get(process, []))
    return found[1:]


def end(seconds: float, leave_nothing_at: list[str]) -> None:
    """End what was started from here, for Slurm may ask this process alone, and leave nothing.

    After so many seconds Slurm kills whatever is left, and this process too.
    """
    deadline = time.monotonic() + seconds
    for process in descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    while descendants() and time.monotonic() < deadline:
        time.sleep(REAP_SECONDS)
    for path in leave_nothing_at:
        shutil.rmtree(path, ignore_errors=True)


def make_private(path: str) -> None:
    """Make a directory that is this user's alone; end where somebody else was there before.

    Everybody may write to its parent, and its name can be guessed.
    """
    os.makedirs(path, mode=0o700, exist_ok=True)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise SystemExit(
            f"{path} on {socket.gethostname()} is no directory of this user (expected one of user "
            f"{os.getuid()}, found one of user {found.st_uid}); ask the site to remove it, or "
            "leave the node out with --exclude in slurm_extra_args"
        )
    os.chmod(path, 0o700)


def make_temporary(job: str, run_dir: str) -> str:
    """Have what is started from here keep its temporary files in one place, and return it.

    That is where the site wants them, if it says so, else beside the sockets.
    """
    make_private(run_dir)
    place = os.path.join(os.environ.get("TMPDIR") or run_dir, f"vllm-{job}")
    make_private(place)
    os.environ["TMPDIR"] = place
    return place


def say(words: str) -> None:
    """Write a line into the job's log."""
    print(f"{time.strftime('%FT%T%z')} {socket.gethostname()} {words}", flush=True)


def main(job: str, end_seconds: float, run_dir: str, mark: str, drain_seconds: float) -> None:
    """Serve until the job ends; what is kept on this node alone goes with it.

    Once there is a mark, servers have so many seconds for what they were asked, and then all ends;
    0 looks for none.
    """
    # Slurm asks every process of the step to end, and this one is to be the last. A handler, for a
    # signal that is blocked stays so in all that is started from here.
    asked_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.set())
    # By this one commands hear that nobody listens. Whoever started us may have ignored it, which
    # they would inherit, as they do not a handler.
    signal.signal(signal.SIGHUP, lambda *_: None)
    temporary = make_temporary(job, run_dir)
    adopt()
    server = listen(job)
    say(f"is held by job {job}")

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            if is_ours(connection):
                threading.Thread(target=serve, args=(connection,), daemon=True).start()
            else:
                connection.close()

    def end_when_drained() -> None:
        wait_until(lambda: there(mark))
        say("takes no more requests: the time is nearly over")
        say(drain(mark, drain_seconds, descendants))
        asked_to_end.set()

    for body in [accept] + [end_when_drained] * (drain_seconds > 0):
        threading.Thread(target=body, daemon=True).start()
    asked_to_end.wait()
    end(end_seconds, [temporary, run_dir])
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4], float(sys.argv[5]))
