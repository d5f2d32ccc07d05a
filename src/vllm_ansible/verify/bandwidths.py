"""Judge bus bandwidth and transport by what is published of such machines, or by the kept run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vllm_ansible.accelerators.accelerator import Accelerator
from vllm_ansible.accelerators.platform import platform
from vllm_ansible.problem import PlanError, Problem
from vllm_ansible.verify.collectives import expected, transport, transport_verdict, verdict
from vllm_ansible.verify.culprits import rate
from vllm_ansible.verify.row import FAIL, PASS, WARN, Row

VERDICTS = {verdict.PASS: PASS, verdict.WARN: WARN, verdict.FAIL: FAIL, verdict.BASELINE: PASS}
CHECK = "bandwidth"


@dataclass(frozen=True)
class Cluster:
    """What the judgement has to know of the hosts, all alike.

    hosts: how many ranks each has. device: what the driver calls the accelerators, empty for
    processors. link: GB/s of a host's interface on the data plane, None where nothing believable
    is told. link_layers: of the active RDMA ports of a host, and ports the GB/s of all of them.
    machine: the cloud's name of its type. efa: how many EFA cards a host has.
    """

    hosts: Mapping[str, int]
    interface: str
    device: str = ""
    link: float | None = None
    link_layers: Sequence[str] = ()
    ports: float = 0.0
    machine: str | None = None
    efa: int = 0

    @property
    def fabric(self) -> bool:
        """Tell whether hosts are joined by more than sockets."""
        return bool(self.link_layers) or self.machine in expected.machine_types()


@dataclass(frozen=True)
class Judge:
    """Judges one measurement; kind is None for processors, kept empty for the first run."""

    found: Mapping[str, Any]
    cluster: Cluster
    kind: Accelerator | None
    kept: Mapping[str, Any]

    @property
    def ring(self) -> bool:
        """Tell whether ranks ran with NCCL_ALGO=RING, as those of several hosts do."""
        return len(self.cluster.hosts) > 1

    def across(self, problems: Sequence[Problem]) -> Row:
        """Return the row on the bandwidth over all hosts."""
        cluster = self.cluster
        measured = self._measured(
            self.found["across"],
            sum(cluster.hosts.values()),
            len(cluster.hosts),
            over_tcp=self.kind is None or not cluster.fabric,
        )
        level = self._expected_across()
        return _row("all hosts", measured, level, self.kept.get("across"), problems)

    def inside(self, host: str, problems: Sequence[Problem]) -> Row:
        """Return the row on the bandwidth inside one host."""
        count = self.cluster.hosts[host]
        operations = self.found["inside"][host]
        measured = self._measured(operations, count, 1, over_tcp=self.kind is None)
        level = None
        if self.kind is not None:
            nvls = not self.ring and bool(self._used().nvls_channels)
            level = expected.inside_node(
                self.kind, count, nvls, self.cluster.machine, self.cluster.device
            )
        return _row(host, measured, level, self.kept.get("inside", {}).get(host), problems)

    def wrong_transport(self) -> list[Problem]:
        """Return what is wrong with the way NCCL has taken; others tell nothing of theirs."""
        if self.kind is None or not platform(self.kind.kind).path_in_log:
            return []
        cluster = self.cluster
        wanted = expected.expected_transport(
            cluster.machine, self.kind, cluster.link_layers, cluster.device, cluster.efa
        )
        return transport_verdict.problems(self._used(), wanted, next(iter(cluster.hosts)))

    def _used(self) -> transport.Transport:
        return transport.transport(self.found["transport"])

    def _measured(
        self, operations: Mapping[str, Any], ranks: int, nodes: int, over_tcp: bool
    ) -> verdict.Measured:
        one = operations["all_reduce"]
        return verdict.Measured(
            "all_reduce",
            {int(one["bytes"]): float(one["busbw"])},
            ranks,
            nodes,
            platform(self.kind.kind).collectives if self.kind else "gloo",
            verdict.RING if self.ring else verdict.DEFAULT,
            over_tcp,
        )

    def _expected_across(self) -> expected.Expectation | None:
        cluster, kind = self.cluster, self.kind
        if kind is None or not cluster.fabric:
            return expected.over_tcp(cluster.link)
        return expected.across_nodes(
            [
                expected.NodeLinks(
                    kind,
                    count,
                    cluster.ports or expected.cards_rate(cluster.machine, kind, count),
                    cluster.device,
                    _busbw(self.found["inside"].get(host)),
                )
                for host, count in cluster.hosts.items()
            ]
        )


def _row(
    where: str,
    measured: verdict.Measured,
    level: expected.Expectation | None,
    kept: Mapping[str, Any] | None,
    problems: Sequence[Problem],
) -> Row:
    what = f"all_reduce over {measured.ranks} ranks"
    try:
        told = verdict.judge(measured, level, _busbw(kept), problems)
    except PlanError as error:
        fix = error.problems[0].fix
        return Row(CHECK, where, FAIL, what, found=str(error), fix=fix)
    least = f"at least {rate(told.threshold)}: " if told.threshold else ""
    wrong = f"; {problems[0].sentence()}" if problems else ""
    return Row(
        CHECK,
        where,
        VERDICTS[told.verdict],
        what,
        f"{least}{told.source}",
        f"{rate(told.found)} of bus bandwidth{wrong}",
        problems[0].fix if problems else told.reading,
    )


def _busbw(operations: Mapping[str, Any] | None) -> float | None:
    return float(operations["all_reduce"]["busbw"]) if operations else None
