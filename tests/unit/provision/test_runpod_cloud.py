"""The emulated RunPod, asked by our client: what it takes and answers fits the description."""

from __future__ import annotations

from typing import Any

import pytest

from tests.emulators.runpod_description import Description
from vllm_ansible.provision.runpod_api import ApiError

from .runpod_world import KANSAS, World

COMPUTE = {"gpuTypeId": "NVIDIA H200", "gpuCountPerPod": 8, "podCount": 2}
CLUSTER: dict[str, Any] = {
    "name": "r1",
    "type": "TRAINING",
    "image": "i",
    "compute": COMPUTE,
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"compute": None}, "None is not of type 'object'"),
        ({"compute": {**COMPUTE, "podCount": 1}}, "1 is less than the minimum of 2"),
        ({"registry": "mine"}, "'registry' was unexpected"),
        ({"type": "SWARM"}, "'SWARM' is not one of"),
    ],
)
def test_a_launch_that_is_not_as_described_is_refused(
    runpod: World, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ApiError) as refused:
        runpod.api.create_cluster({**CLUSTER, **change})
    assert refused.value.status == 422
    assert words in " ".join(refused.value.errors)
    assert runpod.account.clusters == {}


def test_stock_is_told_for_a_product_alone(runpod: World) -> None:
    with pytest.raises(ApiError, match="requires product"):
        runpod.api._ask("GET", "/catalog/gpus?include=AVAILABILITY")
    with pytest.raises(ApiError) as refused:
        runpod.api._ask("GET", "/catalog/gpus?include=AVAILABILITY&product=SHIP")
    assert refused.value.status == 422
    assert runpod.api.stock(8, "CLUSTER")["NVIDIA H200"][KANSAS] == "LOW"


def test_an_answer_that_does_not_fit_would_be_noticed() -> None:
    """Tests end with an empty list of misfits: that has to mean something."""
    misfits = Description().answer_misfits
    assert misfits("GET", "/pods", 200, {"pods": []}) == []
    assert misfits("GET", "/pods", 200, {"pods": [{"id": "a"}]})
    assert misfits("GET", "/pods", 403, {"title": "Forbidden"})
    assert misfits("DELETE", "/pods/{id}", 204, {"id": "a"}) == ["no body is expected"]


def test_a_pod_of_a_living_cluster_cannot_be_ended_alone(runpod: World) -> None:
    runpod.api.create_cluster(CLUSTER)
    pod, _ = runpod.account.pods
    with pytest.raises(ApiError, match="belongs to a cluster") as refused:
        runpod.api.delete_pod(pod)
    assert refused.value.status == 409


def test_who_asks_too_often_waits_as_long_as_the_answer_says(runpod: World) -> None:
    runpod.cloud.crowd_requests, runpod.cloud.retry_after = 1, "7"
    assert runpod.api.clusters() == []
    assert [status for _, _, status in runpod.cloud.log] == [429, 200]
    assert [round(one) for one in runpod.waits] == [7]


def test_another_key_is_refused(runpod: World) -> None:
    runpod.cloud.key = "other"
    with pytest.raises(ApiError, match="invalid bearer token") as refused:
        runpod.api.pods()
    assert refused.value.status == 401
