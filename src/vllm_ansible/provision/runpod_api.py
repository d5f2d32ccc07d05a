"""RunPod's REST API, version 2, as far as clusters, pods and network volumes are rented with it.

A cluster has no idempotency key: whether a launch whose answer was lost was carried out, only the
lists tell, by the cluster's name (`ReplyLost`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .transport import Answer, Api, Refused, strange

BAD_KEY, NO_BALANCE, FORBIDDEN, NOT_FOUND, CONFLICT, UNFIT, CROWDED = (
    *(401, 402, 403, 404, 409, 422, 429),
)
LAUNCH = ("request", "launch")


class ApiError(Refused):
    """RunPod refused, in its own words: a short title, a sentence, and what did not fit."""

    def __init__(self, status: int, title: str, detail: str, errors: Sequence[str] = ()) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail, self.errors = status, title, detail, tuple(errors)


class SpendLimit(ApiError):
    """RunPod refuses for want of capacity again and again what its catalogue shows to be there."""


class RunpodApi(Api):
    """Requests in their turn, each answered with its data or with one kind of error."""

    def clusters(self) -> list[dict[str, Any]]:
        """Return the account's clusters."""
        return list(self._ask("GET", "/clusters")["clusters"])

    def pods(self) -> list[dict[str, Any]]:
        """Return the account's pods, those of clusters included."""
        return list(self._ask("GET", "/pods?includeClusterPods=true")["pods"])

    def gpu_types(self) -> dict[str, dict[str, Any]]:
        """Return price and size of each type of accelerator, by its catalogue name."""
        return {str(one["id"]): dict(one) for one in self._ask("GET", "/catalog/gpus")["gpus"]}

    def stock(self, count: int, product: str) -> dict[str, dict[str, str]]:
        """Return in words how much room there is for so many accelerators of a type in one pod.

        By catalogue name, then by data center: NONE, LOW, MEDIUM or HIGH. A data center that does
        not offer the type is not there. `product` is POD or CLUSTER.
        """
        asked = f"include=AVAILABILITY&product={product}&count={count}&cloud=SECURE"
        return _levels(self._ask("GET", f"/catalog/gpus?{asked}")["gpus"])

    def cpu_types(self) -> dict[str, dict[str, Any]]:
        """Return price and sizes of each flavor of CPU pods, by its catalogue name."""
        return {str(one["id"]): dict(one) for one in self._ask("GET", "/catalog/cpus")["cpus"]}

    def cpu_stock(self, count: int) -> dict[str, dict[str, str]]:
        """Return in words how much room there is for CPU pods of so many vCPUs.

        By flavor, then by data center; one that does not offer the flavor is not there.
        """
        asked = f"include=AVAILABILITY&product=POD&vcpuCount={count}"
        return _levels(self._ask("GET", f"/catalog/cpus?{asked}")["cpus"])

    def data_centers(self) -> dict[str, list[str]]:
        """Return the kinds of network volumes that each data center has, by its id."""
        found = self._ask("GET", "/catalog/datacenters")["dataCenters"]
        return {str(one["id"]): list(one["networkVolumeTypes"]) for one in found}

    def create_cluster(self, wanted: Mapping[str, Any]) -> str:
        """Create a cluster and return its id."""
        return str(self._ask("POST", "/clusters", wanted, LAUNCH)["id"])

    def create_pod(self, wanted: Mapping[str, Any]) -> str:
        """Create a pod of its own and return its id."""
        return str(self._ask("POST", "/pods", wanted, LAUNCH)["id"])

    def delete_cluster(self, identity: str) -> None:
        """End a cluster with all of its pods; one that is gone is ended."""
        self._delete(f"/clusters/{identity}")

    def delete_pod(self, identity: str) -> None:
        """End a pod of its own; one that is gone is ended."""
        self._delete(f"/pods/{identity}")

    def volumes(self) -> list[dict[str, Any]]:
        """Return the account's network volumes."""
        return list(self._ask("GET", "/network-volumes")["networkVolumes"])

    def create_volume(self, name: str, place: str, size_gb: int) -> str:
        """Create a network volume and return its id."""
        wanted = {"name": name, "dataCenter": place, "size": size_gb}
        return str(self._ask("POST", "/network-volumes", wanted)["id"])

    def delete_volume(self, identity: str) -> None:
        """Delete a network volume and all that is in it."""
        self._delete(f"/network-volumes/{identity}")

    def volume_bills(self) -> list[dict[str, Any]]:
        """Return what each network volume cost yesterday and today, a record for each day."""
        asked = "/billing/network-volumes?bucketSize=day&lastN=2"
        return list(self._ask("GET", asked)["records"])

    def _delete(self, path: str) -> None:
        try:
            self._ask("DELETE", path)
        except ApiError as refusal:
            if refusal.status != NOT_FOUND:
                raise

    def _data(self, answer: Answer) -> Any:
        """Return the data of an answer, or raise what it refuses with."""
        if answer.status == 204:
            return None
        try:
            content = json.loads(answer.body)
            if answer.status < 300:
                return dict(content)
            title, detail = str(content["title"]), str(content["detail"])
            errors = [str(one) for one in content.get("errors") or ()]
        except (ValueError, KeyError, TypeError) as failure:
            raise strange(answer) from failure
        raise ApiError(answer.status, title, detail, errors)

    def _crowded(self, answer: Answer, held: float) -> ApiError:
        """Return the refusal of a key that something else uses all the time."""
        message = f"too many requests for {held:.0f} s, all of ours being waits"
        return ApiError(answer.status, "Too Many Requests", message)


def _levels(listed: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the stock of each type in words, by data center."""
    return {
        str(one["id"]): {
            str(place["id"]): str(place["availability"]) for place in one.get("dataCenters", ())
        }
        for one in listed
    }
