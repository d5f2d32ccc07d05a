"""What NCCL really used, from its own log (NCCL_DEBUG=INFO), not from what was configured.

Lines as printed by NCCL 2.4 to 2.28 and aws-ofi-nccl 1.5 to 1.16; those of 2.28.9 on four H200 are
kept in tests/data/collectives.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from vllm_ansible.frozen import frozen

EFA, INFINIBAND, ROCE, SOCKET = "efa", "infiniband", "roce", "socket"
P2P, SHM, NET = "P2P", "SHM", "NET"
HOST = re.compile(r"([\w.-]+):(\d+):\d+ \[-?\d+\]")
# `Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM`; 2.4 says Ring and prints no device
CHANNEL = re.compile(
    r"(?:Channel|Ring) \d+(?:/\d+)? ?: (\d+)(?:\[\w+\])? -> (\d+)(?:\[\w+\])? "
    r"(?:\[(send|receive)\] )?via (.+?)(?: comm .*)?$"
)
COMM = re.compile(r"nRanks (\d+) nNodes (\d+)")
RANK = re.compile(r"comm 0x\w+ rank (\d+) nranks (\d+) ")
NETWORK = re.compile(r"Using network (.+?)\s*$")
PROVIDER = re.compile(r"Selected [Pp]rovider is (\w+)(?:, fabric is [\w-]+)? \(found (\d+) nics?\)")
CARD = re.compile(r"\[\d+\]\s?([\w.+-]+):(\d+)/(IB|RoCE)")
USING_CARDS = re.compile(r"NET/IB ?: Using (.*)")
# Not `for GPU 0 / HCA 5 (distance ...)`, which is healthy for a card that another device uses, and
# not NET/Socket's, which has none to disable
UNDIRECT = re.compile(r"NET/(?!Socket).* : GPU Direct RDMA Disabled for HCA (?:\d+ )?'?([^\s'(]+)")
# NCCL's own, NVIDIA's plugin for its network cards by three names
VERBS = re.compile(r"IB|NCCL RDMA Plugin|UCX")
NVLS = re.compile(r"(\d+) nvls channels")
VERSION = re.compile(r"NCCL version (\S+)")
PLUGIN = re.compile(r"NET/OFI (?:Using|Initializing) aws-ofi-nccl (\S+)")
NO_PLUGIN = re.compile(
    r"NET/Plugin ?: (?:No plugin found|Could not find|.*not found|Failed to find)"
)
SET = re.compile(r"(NCCL_\w+) set by environment to (.+?)\.?$")


@frozen
class Transport:
    """What a run used. Mappings are (name, channels) pairs, most used first.

    `inside` and `across` name the way of a channel: P2P/CUMEM, SHM/direct, NET/IB. `direct` and
    `undirect` count channels across nodes with and without GPUDirect RDMA. `nics` is what the
    provider of libfabric found, `cards` what NCCL's own InfiniBand transport uses, with IB or RoCE.
    `nvls_channels` is 0 where NVLink SHARP is not used, None where the log does not say.
    """

    versions: tuple[str, ...]
    plugin: str | None
    ranks: int
    nodes: int
    inside: tuple[tuple[str, int], ...]
    across: tuple[tuple[str, int], ...]
    networks: tuple[str, ...]
    provider: str | None
    nics: int | None
    cards: tuple[str, ...]
    direct: int
    undirect: int
    undirect_cards: tuple[str, ...]
    nvls_channels: int | None
    plugin_missing: bool
    settings: tuple[tuple[str, str], ...]

    @property
    def fabric(self) -> str | None:
        """Return efa, infiniband, roce, socket or another name by what carried channels.

        None within one node. A single channel over sockets makes it socket: the slowest way counts.
        """
        ways = [name.removeprefix("NET/") for name, _ in self.across]
        if not ways:
            return None
        if "Socket" in ways or self.provider in ("tcp", "sockets"):
            return SOCKET
        if any("Libfabric" in way or way == "OFI" for way in ways):
            return self.provider or EFA
        if any(VERBS.match(way) for way in ways):
            kinds = {card.rsplit("/", 1)[1] for card in self.cards}
            return ROCE if kinds == {"RoCE"} else INFINIBAND
        return ways[0]


def transport(lines: Iterable[str]) -> Transport:
    """Return what the log's lines tell, whichever rank printed them and in whatever order."""
    found = _Found()
    for line in lines:
        if "NCCL" in line:
            found.take(line.rstrip())
    return found.result()


class _Found:
    """Collects what each line says."""

    def __init__(self) -> None:
        self.versions: Counter[str] = Counter()
        self.networks: Counter[str] = Counter()
        self.channels: list[tuple[int, int, str | None, str]] = []
        self.hosts: dict[int, str] = {}
        self.cards: Counter[str] = Counter()
        self.undirect_cards: Counter[str] = Counter()
        self.settings: dict[str, str] = {}
        self.nics: list[int] = []
        self.nvls: list[int] = []
        self.ranks = self.nodes = 0
        self.plugin: str | None = None
        self.providers: Counter[str] = Counter()
        self.plugin_missing = False

    def take(self, line: str) -> None:
        """Take one line of a log."""
        host = HOST.search(line)
        if channel := CHANNEL.search(line):
            sender, receiver = int(channel[1]), int(channel[2])
            self.channels.append((sender, receiver, channel[3], channel[4].strip()))
            self.ranks = max(self.ranks, sender + 1, receiver + 1)
        if rank := RANK.search(line):
            self.ranks = max(self.ranks, int(rank[2]))
            if host:
                self.hosts[int(rank[1])] = host[1]
        if comm := COMM.search(line):
            self.ranks, self.nodes = (
                max(self.ranks, int(comm[1])),
                max(self.nodes, int(comm[2])),
            )
        if provider := PROVIDER.search(line):
            self.providers[provider[1].lower()] += 1
            self.nics.append(int(provider[2]))
        if nvls := NVLS.search(line):
            self.nvls.append(int(nvls[1]))
        if cards := USING_CARDS.search(line):
            self.cards.update(
                f"{name}:{port}/{kind}" for name, port, kind in CARD.findall(cards[1])
            )
        if setting := SET.search(line):
            self.settings[setting[1]] = setting[2]
        for pattern, counts in (
            (VERSION, self.versions),
            (NETWORK, self.networks),
            (UNDIRECT, self.undirect_cards),
        ):
            if match := pattern.search(line):
                counts[match[1]] += 1
        if plugin := PLUGIN.search(line):
            self.plugin = plugin[1]
        self.plugin_missing |= bool(NO_PLUGIN.search(line))

    def result(self) -> Transport:
        """Return everything, the ways sorted into those inside nodes and across."""
        nodes = max(self.nodes, len(set(self.hosts.values())), 1)
        inside: Counter[str] = Counter()
        across: Counter[str] = Counter()
        direct = undirect = 0
        for sender, receiver, side, way in self.channels:
            name = _name(way)
            if not name.startswith(NET):
                inside[name] += 1
            elif nodes == 1 or self._one_host(sender, receiver):
                inside[name] += side != "receive"
            elif side != "receive":
                across[name] += 1
                direct += "/GDRDMA" in way
                undirect += "/GDRDMA" not in way
        return Transport(
            versions=tuple(sorted(self.versions)),
            plugin=self.plugin,
            ranks=self.ranks,
            nodes=nodes,
            inside=tuple(inside.most_common()),
            across=tuple(across.most_common()),
            networks=tuple(name for name, _ in self.networks.most_common()),
            provider=self.providers.most_common(1)[0][0] if self.providers else None,
            nics=min(self.nics) if self.nics else None,
            cards=tuple(sorted(self.cards)),
            direct=direct,
            undirect=undirect,
            undirect_cards=tuple(sorted(self.undirect_cards)),
            nvls_channels=min(self.nvls) if self.nvls else None,
            plugin_missing=self.plugin_missing,
            settings=tuple(sorted(self.settings.items())),
        )

    def _one_host(self, one: int, other: int) -> bool:
        """Return whether two ranks are known to share a host, of several that print their names."""
        if len(set(self.hosts.values())) < 2:
            return False
        return self.hosts.get(one, "?") == self.hosts.get(other, "!")


def _name(way: str) -> str:
    """Return a way without the card and the flags: NET/IB/2(3)/GDRDMA is NET/IB."""
    parts = way.split("/")
    if parts[0] == NET:
        return "/".join(parts[:2])
    return "/".join(parts[:2]) if parts[0] in (P2P, SHM) else parts[0]
