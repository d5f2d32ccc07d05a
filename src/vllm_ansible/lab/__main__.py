"""Command line of the lab: `python -m vllm_ansible.lab up`."""

import argparse
import os
import shlex
import sys
import time
from pathlib import Path

from .commands import LabError
from .handover import hand_over
from .lab import Lab
from .paths import DEFAULT_NAME, REPOSITORY, cache_root
from .record import LinkRecord
from .vm import DEFAULT_NAME as VM_NAME
from .vm import Machine


def parser() -> argparse.ArgumentParser:
    """Return the argument parser with one command for each verb."""
    top = argparse.ArgumentParser(prog="python -m vllm_ansible.lab", description=__doc__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--name", default=DEFAULT_NAME, help="several labs live side by side")
    common.add_argument(
        "--root", type=Path, default=REPOSITORY, help="keep state/lab under this directory"
    )
    verbs = top.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", parents=[common], help="start the hosts that are missing")
    up.add_argument("--hosts", type=int, default=3)
    up.add_argument(
        "--second-network",
        action="store_true",
        help="add a network for data; the default route stays on the first one",
    )
    up.add_argument("--inventory", type=Path, help="write hosts.yml into this directory")
    verbs.add_parser("down", parents=[common], help="remove exactly what up made")
    verbs.add_parser("status", parents=[common], help="show hosts, addresses and links")
    link = verbs.add_parser("link", parents=[common], help="change one link, or one pair of hosts")
    link.add_argument("action", choices=["limit", "cut", "restore"])
    link.add_argument("host")
    link.add_argument("peer", nargs="?", default="", help="the other host of a pair")
    link.add_argument("--network", default="", help="front or data; the last network if not given")
    link.add_argument("--rate", default="", help="both directions, like 100mbit")
    link.add_argument("--delay", default="", help="one way, like 20ms")
    link.add_argument("--loss", type=float, default=0.0, help="percent of packets, each direction")
    machine = verbs.add_parser("vm", help="a virtual machine with a kernel of its own")
    machine.add_argument("action", choices=["up", "down", "status"])
    machine.add_argument("--name", default=VM_NAME)
    machine.add_argument("--root", type=Path, default=REPOSITORY)
    machine.add_argument("--memory", type=int, default=1024, metavar="MIB")
    return top


def say(text: str) -> None:
    """Tell one step of a long command."""
    print(f"lab: {text}", flush=True)


def up(options: argparse.Namespace) -> None:
    """Start the lab and say how to use it."""
    started = time.monotonic()
    lab = Lab.create(
        options.hosts,
        options.name,
        second_network=options.second_network,
        inventory=options.inventory,
        root=options.root,
        progress=say,
    )
    say(
        f"{len(lab.record.hosts)} hosts answer SSH after {time.monotonic() - started:.1f} s; "
        f"inventory {lab.inventory}"
    )
    if name := hand_over(lab.paths, os.environ, options.root):
        say(f"its inventory and key belong to {name}; playbooks need no root")


def down(options: argparse.Namespace) -> None:
    """Remove the lab; one that does not exist is no error."""
    try:
        lab = Lab.open(options.name, root=options.root)
    except LabError as error:
        say(str(error))
        return
    lab.down()
    say(f"{options.name} is removed; the node image and the caches in {lab.record.cache} stay")


def status(options: argparse.Namespace) -> None:
    """Print what the lab is made of."""
    lab = Lab.open(options.name, root=options.root)
    for network in lab.record.networks:
        print(f"network {network.role}: {network.subnet} ({network.name})")
    for name, state in lab.status().items():
        addresses = ", ".join(f"{k} {v}" for k, v in lab.record.host(name).addresses.items())
        print(f"host {name}: {state}; {addresses} ({lab.record.host(name).container})")
    for one in lab.record.links:
        print(show(one))


def link(options: argparse.Namespace) -> None:
    """Change one link of a running lab."""
    lab = Lab.open(options.name, root=options.root)
    chosen = lab.link(options.host, options.peer, options.network)
    if options.action == "limit":
        chosen.limit(options.rate, options.delay, options.loss)
    elif options.action == "cut":
        chosen.cut()
    else:
        chosen.restore()


def vm(options: argparse.Namespace) -> None:
    """Start, stop or find the virtual machine."""
    machine = Machine(options.name, options.root)
    if options.action == "up":
        started = time.monotonic()
        machine = Machine.create(
            options.name, memory_mib=options.memory, root=options.root, progress=say
        )
        say(f"the virtual machine answers SSH after {time.monotonic() - started:.1f} s:")
    elif options.action == "down":
        machine.down()
        say(f"{options.name} is removed; its disk image stays in {cache_root() / 'vm'}")
        return
    print(shlex.join(machine.ssh()))


def show(link: LinkRecord) -> str:
    """Describe one changed link in a line."""
    ends = f"{link.host} - {link.peer}" if link.peer else link.host
    limits = {"rate": link.rate, "delay": link.delay, "loss": f"{link.loss}%" if link.loss else ""}
    state = " ".join(f"{name} {value}" for name, value in limits.items() if value)
    return f"link {ends} on {link.network}: {'cut' if link.cut else state or 'unlimited'}"


def main() -> int:
    """Run one verb; a failure is one line."""
    options = parser().parse_args()
    verbs = {"up": up, "down": down, "status": status, "link": link, "vm": vm}
    try:
        verbs[options.verb](options)
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lab: interrupted; `up` resumes, `down` removes it", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
