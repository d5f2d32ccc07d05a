"""The account's clusters and pods, asked for together, and prices as they are needed."""

from __future__ import annotations

from typing import Any

from .fleet import Machine
from .runpod_api import RunpodApi
from .runpod_pods import (
    PART,
    cost_of,
    environment,
    group_of,
    kind_of,
    launch_of,
    machines,
    mine,
    shape_of,
)


class Lists:
    """What was listed last; `state` is the id of this controller's state/."""

    def __init__(self, api: RunpodApi, cluster: str, state: str) -> None:
        self._api, self._cluster, self._state = api, cluster, state
        self._types: dict[str, dict[str, Any]] = {}
        self._cpus: dict[str, dict[str, Any]] = {}
        self.clusters: list[dict[str, Any]] = []
        self.pods: list[dict[str, Any]] = []

    def machines(self) -> list[Machine]:
        """Return the cluster's machines as they are listed now."""
        # Pods first: one of a cluster that is made between both requests would look left behind.
        self.pods, self.clusters = self._api.pods(), self._api.clusters()
        return machines(self._cluster, self.clusters, self.pods, self.price, self._state)

    def types(self) -> dict[str, dict[str, Any]]:
        """Return the catalogue's types; prices of a moment ago are those of now."""
        self._types = self._types or self._api.gpu_types()
        return self._types

    def cpus(self) -> dict[str, dict[str, Any]]:
        """Return the catalogue's flavors of CPU pods."""
        self._cpus = self._cpus or self._api.cpu_types()
        return self._cpus

    def price(self, kind: str) -> float:
        """Return what one accelerator, or one vCPU, costs, in US dollars an hour."""
        if kind in self.types():
            return float(self.types()[kind].get("price", {}).get("secure", 0))
        return float(self.cpus().get(kind, {}).get("price", {}).get("securePerVcpu", 0))

    def others_cost(self, part: str = "") -> float:
        """Return what the account's other pods cost in US dollars an hour.

        Those beside the cluster are others; for a part beside it, all are.
        """
        living = {str(one["id"]) for one in self.clusters}
        others = [
            one for one in self.clusters if part or not launch_of(self._cluster, str(one["name"]))
        ]
        alone = [
            one
            for one in self.pods
            if group_of(one) not in living
            and (part or not mine(self._cluster, one) or PART in environment(one))
        ]
        return sum(map(self.cluster_cost, others)) + sum(map(self.cost, alone))

    def cluster_cost(self, cluster: dict[str, Any]) -> float:
        """Return what a cluster costs in US dollars an hour, with pods that no list shows yet."""
        shape = shape_of(cluster)
        members = [one for one in self.pods if group_of(one) == cluster["id"]]
        lacking = max(int(cluster["compute"]["podCount"]) - len(members), 0)
        unlisted = lacking * cost_of({}, shape, self.price) if lacking else 0.0
        return unlisted + sum(map(self.cost, members))

    def cost(self, pod: dict[str, Any]) -> float:
        """Return what a pod costs in US dollars an hour."""
        kind = kind_of(pod)
        return cost_of(pod, kind, self.price) if kind else float(pod["cost"])
