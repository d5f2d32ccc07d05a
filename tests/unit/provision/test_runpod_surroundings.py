"""What becomes of a network volume when its pods have ended, and what is said of it."""

from __future__ import annotations

from vllm_ansible.provision.runpod_provider import PROVIDER
from vllm_ansible.provision.runpod_surroundings import Surroundings

from .runpod_world import KANSAS, World


def said(runpod: World, **settings: object) -> str:
    """Return what a run says at its end, after it has removed what it may."""
    around = Surroundings(runpod.api, runpod.wanted(**settings))
    around.remove()
    return PROVIDER.kept(around)


def test_what_has_happened_to_the_volume_is_said(runpod: World) -> None:
    assert said(runpod) == ""
    assert said(runpod, volume="r1") == "no network volume r1 is listed"
    volumes = runpod.account.volumes
    runpod.account.create_volume({"name": "r1", "dataCenter": KANSAS, "size": 10})
    kept = "network volume r1 is kept unless runpod_remove_volume is true"
    assert said(runpod, volume="r1") == kept
    runpod.account.faults.forbidden.add(("GET", "/network-volumes"))
    assert said(runpod, volume="r1") == kept
    runpod.account.faults.forbidden.clear()
    assert len(volumes) == 1
    deleted = f"network volume r1 in {KANSAS} is deleted with all that was in it"
    assert said(runpod, volume="r1", remove_volume=True) == deleted
    assert len(volumes) == 0
    assert said(runpod, volume="r1", remove_volume=True) == "no network volume r1 is listed"
