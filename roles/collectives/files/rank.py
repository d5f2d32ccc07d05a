"""One rank of a measurement of collectives: it does what the coordinator asks, and reports times.

Started once on each host, it starts the host's ranks, each in a process of its own; they live
through all rounds and end when the coordinator hangs up. Needs the engine's PyTorch, so that what
is measured is the library that will serve. The other files here and node/collectives/channel.py
must lie beside it.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from channel import Channel, ChannelError, connect, key_of
from fabric import links
from operations import OPERATIONS, Place

CONNECT_SECONDS = 60.0
# What carries traffic between accelerators, and what PyTorch calls these. ECCL comes with
# Enflame's extension of PyTorch, whose manual has the names: torch.cuda, nccl; torch.gcu, eccl.
DEVICES = {"nccl": "cuda", "eccl": "gcu"}
# Bounded above every wait of the coordinator, which ends ranks by hanging up.
GROUP_SECONDS = 300
TOLD_BY_NCCL = (
    "via ",
    "NVLS",
    "nvls",
    "Using network",
    "NET/",
    "GPU Direct",
    "NCCL version",
    "nRanks",
    "set by",
)


def arguments() -> argparse.Namespace:
    """Read what the host's ranks are told."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coordinator", required=True, help="address")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--key-file", type=Path, required=True)
    parser.add_argument("--host", required=True, help="its name in the inventory")
    parser.add_argument("--address", required=True, help="its own, on the data plane")
    parser.add_argument("--interface", required=True, help="that of the data plane")
    parser.add_argument("--backend", choices=["gloo", *DEVICES], required=True)
    parser.add_argument("--device", default="", help="what its driver calls an accelerator")
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--local-rank", type=int)
    return parser.parse_args()


def start_all(count: int) -> int:
    """Start the ranks of this host and wait for them; return the worst exit status."""
    argv = [sys.executable, *sys.argv]
    ranks = [
        subprocess.Popen([*argv, f"--local-rank={number}"])  # noqa: S603 - this very program
        for number in range(count)
    ]
    return max(abs(rank.wait()) for rank in ranks)


def reach(options: argparse.Namespace) -> Channel:
    """Connect to the coordinator, which may be started a little later than its ranks."""
    key = key_of(options.key_file.read_bytes())
    deadline = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            return connect((options.coordinator, options.port), key, options.address)
        except (OSError, ChannelError) as error:
            if time.monotonic() > deadline:
                sys.exit(f"no coordinator at {options.coordinator}:{options.port}: {error}")
            time.sleep(0.2)


def who(options: argparse.Namespace) -> dict[str, Any]:
    """Return by what the coordinator knows a rank."""
    return {"host": options.host, "local_rank": options.local_rank}


class Rank:
    """The state of one rank: its device and its groups."""

    def __init__(self, options: argparse.Namespace) -> None:
        import torch

        self.options = options
        self.torch = torch
        self.nccl = options.backend == "nccl"
        torch.set_num_threads(1)
        self.device = torch.device("cpu")
        self.accelerator: Any = None
        if kind := DEVICES.get(options.backend):
            if kind == "gcu":
                import torch_gcu  # noqa: F401 - it makes torch.gcu and the backend eccl
            self.accelerator = getattr(torch, kind)
            self.accelerator.set_device(options.local_rank)
            self.device = torch.device(kind, options.local_rank)
        self.rank = self.world = 0
        self.groups: list[Any] = []
        self.members: list[list[int]] = []
        self.store: Any = None

    def hello(self) -> dict[str, Any]:
        """Return who this is."""
        torch = self.torch
        return {
            **who(self.options),
            "pid": os.getpid(),
            "torch": torch.__version__,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())) if self.nccl else "",
            "device": torch.cuda.get_device_name() if self.nccl else self.options.device,
            "links": links(self.options.interface),
        }

    def join(self, rank: int, members: list[list[int]], store: list[Any]) -> dict[str, Any]:
        """Form the groups; the first one holds every rank."""
        dist = self.torch.distributed
        self.rank, self.members, self.world = rank, members, len(members[0])
        bound: dict[str, Any] = {}
        if rank == 0:
            # Left to itself, the store would listen on every address.
            listener = socket.create_server((store[0], store[1]), backlog=4096)
            bound = {"master_listen_fd": listener.detach()}
        limit = timedelta(seconds=GROUP_SECONDS)
        self.store = dist.TCPStore(
            store[0],
            store[1],
            self.world,
            is_master=rank == 0,
            timeout=limit,
            wait_for_workers=False,
            **bound,
        )
        dist.init_process_group(
            self.options.backend,
            store=self.store,
            rank=rank,
            world_size=self.world,
            timeout=limit,
            **({"device_id": self.device} if self.nccl else {}),
        )
        self.groups = [dist.group.WORLD, *(dist.new_group(ranks) for ranks in members[1:])]
        return {}

    def wait(self) -> None:
        """Wait until the device has done what it was asked."""
        if self.accelerator:
            self.accelerator.synchronize()

    def timed(
        self,
        act: Callable[[], Any],
        warm_up: int,
        iterations: int,
        before: Callable[[], Any] = lambda: None,
    ) -> list[float]:
        """Return the seconds of each run after the first ones; what comes before is not timed."""
        seconds = []
        for _ in range(warm_up + iterations):
            before()
            self.wait()
            start = time.perf_counter()
            act()
            self.wait()
            seconds.append(time.perf_counter() - start)
        return seconds[warm_up:]

    def collective(
        self, operation: str, size: int, group: int, warm_up: int, iterations: int
    ) -> dict[str, Any]:
        """Run one operation; size is the bytes of its larger side, as in nccl-tests."""
        for number, ranks in enumerate(self.members):
            if self.rank in ranks and (number == group or (group < 0 < number)):
                place = Place(self.torch, self.device, self.groups[number], ranks, self.rank)
                made = OPERATIONS[operation](place, size)
                seconds = self.timed(made.act, warm_up, iterations, made.before)
                return {"seconds": seconds, "wrong": made.wrong(), "group": number}
        return {}

    def pair(self, peer: int | None, size: int, warm_up: int, iterations: int) -> dict[str, Any]:
        """Exchange so many bytes with a peer, in both directions at once."""
        if peer is None:
            return {}
        torch, dist = self.torch, self.torch.distributed
        elements = max(1, size // 4)
        given = torch.full((elements,), float(self.rank), dtype=torch.float32, device=self.device)
        found = torch.full_like(given, -1.0)
        tiny_given, tiny_found = given[:1].clone(), found[:1].clone()

        def exchange(out: Any, back: Any) -> None:
            # gloo lets the sender begin by a word on the stream that carries the data: who sends
            # before it is ready to receive makes its peer wait, and halves the rate.
            receive = dist.P2POp(dist.irecv, back, peer)
            send = dist.P2POp(dist.isend, out, peer)
            for work in dist.batch_isend_irecv([receive, send]):
                work.wait()

        # Also lets the two start together.
        latency = self.timed(lambda: exchange(tiny_given, tiny_found), 2, 5)
        seconds = self.timed(lambda: exchange(given, found), warm_up, iterations)
        wrong = int((found != float(peer)).sum().item())
        return {"seconds": seconds, "latency": sorted(latency)[2], "wrong": wrong}

    def transport(self) -> dict[str, Any]:
        """Return the lines in which NCCL says over what it talks."""
        path = nccl_log()
        if not path.is_file():
            return {"lines": []}
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        return {"lines": [line for line in lines if any(word in line for word in TOLD_BY_NCCL)]}


def nccl_log() -> Path:
    """Return the file into which NCCL writes for this process."""
    return Path(os.environ.get("NCCL_DEBUG_FILE", "/none").replace("%p", str(os.getpid())))


def tcp_counters() -> dict[str, int]:
    """Return how many TCP segments this host has sent, and how many of them again."""
    rows = [line.split() for line in Path("/proc/net/snmp").read_text().splitlines()]
    names, values = (row for row in rows if row[0] == "Tcp:")
    table = dict(zip(names[1:], map(int, values[1:]), strict=True))
    return {"sent": table["OutSegs"], "again": table["RetransSegs"]}


def serve(rank: Rank, channel: Channel) -> None:
    """Do what the coordinator asks until it hangs up."""
    acts: dict[str, Callable[..., dict[str, Any]]] = {
        "join": rank.join,
        "collective": rank.collective,
        "pair": rank.pair,
        "transport": rank.transport,
        "tcp": tcp_counters,
    }
    messages: list[dict[str, Any]] = []
    there = threading.Condition()

    def listen() -> None:
        # In a thread of its own: a rank that waits for a peer for ever still ends on request.
        while (message := channel.receive()) is not None:
            with there:
                messages.append(message)
                there.notify()
        nccl_log().unlink(missing_ok=True)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    channel.send(rank.hello())
    while True:
        with there:
            there.wait_for(lambda: messages)
            message = messages.pop(0)
        name = str(message.pop("do"))
        try:
            answer = acts[name](**message)
        except Exception as error:  # whatever it is, the coordinator has to hear of it
            answer = {"error": f"{type(error).__name__}: {error}"}
        channel.send(answer)


def main() -> int:
    """Start the ranks of a host, or be one of them."""
    options = arguments()
    # Newer names exist for some operations, but not in every PyTorch that serves.
    warnings.simplefilter("ignore", FutureWarning)
    if options.local_rank is None:
        return start_all(options.ranks)
    try:
        # PyTorch takes seconds to load: only then does the coordinator hear of this rank.
        rank = Rank(options)
    except Exception as error:  # whatever it is, nobody has to wait for this rank
        reach(options).send({**who(options), "error": f"{type(error).__name__}: {error}"})
        raise
    serve(rank, reach(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
