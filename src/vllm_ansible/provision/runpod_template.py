"""What RunPod is asked for when the pods of a cluster are launched."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from .fleet import Offer
from .runpod_pods import CLUSTER, LAUNCH, OWNER, PART, SLOTS, STATE, STATE_LETTERS, name
from .runpod_settings import Settings, parts
from .runpod_start import arguments


@dataclass(frozen=True, slots=True)
class Template:
    """What all pods of a cluster have in common, or what one beside it has.

    `part` names the one beside it.
    """

    settings: Settings
    owner: str
    # Of the controller's state/, empty before it has one.
    state: str = ""
    part: str = ""

    def launch(self) -> str:
        """Return the id of a new launch, which begins with that of the state/."""
        return f"{self.state[:STATE_LETTERS]:0<{STATE_LETTERS}}{secrets.token_hex(4)}"

    def body(self, offer: Offer, launch: str, volume: str) -> dict[str, Any]:
        """Return the body of a launch: a cluster, or a pod where there is one machine.

        The environment can be read by whoever may list pods: nothing in it is a secret.
        """
        wanted = self.settings
        count, kind = parts(offer.type)
        tags = {
            CLUSTER: wanted.cluster,
            LAUNCH: launch,
            SLOTS: "1" if self.part else str(wanted.count),
            OWNER: self.owner,
            STATE: self.state,
            PART: self.part,
        }
        body: dict[str, Any] = {
            "name": name(wanted.cluster, launch, self.part),
            "image": wanted.image,
            "disk": wanted.disk_gb,
            "env": {"PUBLIC_KEY": wanted.public_key(), **{k: v for k, v in tags.items() if v}},
            "ports": ["22/tcp"] if self.part else wanted.ports,
            "dataCenterIds": [offer.region],
            "startSsh": True,
        }
        if volume:
            body["mounts"] = {"network": [{"volumeId": volume, "path": wanted.volume_path}]}
        if self.part:
            small = {"image": wanted.cpu_image or wanted.image, "disk": wanted.cpu_disk_gb}
            return {**body, **small, "cloud": "SECURE", "cpu": {"id": kind, "vcpuCount": count}}
        if start := arguments(wanted):
            body["args"] = start
        if wanted.count == 1:
            return {**body, "cloud": "SECURE", "gpu": {"id": kind, "count": count}}
        shape = {"gpuTypeId": kind, "gpuCountPerPod": count, "podCount": wanted.count}
        return {**body, "type": "TRAINING", "compute": shape}
