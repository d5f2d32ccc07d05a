"""Enflame's GCU: its vendor's release of vLLM comes in an image."""

from __future__ import annotations

import re

from ..platform import Platform, RankOfData

# The vendor's release, whose data ranks meet by their environment.
PINNED = re.compile(r"0\.9\.2(?!\d)")
# Of one token, beside its hidden state: its experts and their weights, as the vendor counts.
ROUTING = 16 + 16
ELEMENT_BYTES = 2


def rank_variables(rank: RankOfData) -> dict[str, str]:
    """Return what a data rank needs, with the most bytes that one exchange of tokens carries."""
    found = collective_variables(rank.interface)
    if rank.experts and rank.step_tokens and rank.hidden_size:
        size = rank.step_tokens * rank.ranks * (rank.hidden_size + ROUTING) * ELEMENT_BYTES
        found["ECCL_ALLTOALLV_MAXSIZE"] = str(size)
    return found


def collective_variables(interface: str) -> dict[str, str]:
    """Return what its collective library needs: left to itself it may take another network."""
    return {"ECCL_SOCKET_IFNAME": interface, "TORCH_ECCL_AVOID_RECORD_STREAMS": "1"}


PLATFORM = Platform(
    # Without data ranks nobody has served one so by the vendor's vLLM.
    expert_parallel=False,
    name="enflame",
    title="Enflame",
    software="gcu",
    visible_devices="TOPS_VISIBLE_DEVICES",
    # What vLLM takes for a step where a prompt is not cut: no less than a whole prompt.
    step_tokens=2048,
    rank_variables=rank_variables,
    first_engine=lambda version: PINNED.match(version) is not None,
    first_engine_variables={"VLLM_GCU_ENABLE_SEQUENCE_PARALLEL": "1"},
    no_dynamo="vLLM of Enflame's release, which has no Rust front end",
    no_lock_fix=(
        "Enflame's engine comes in the vendor's image: set engine_source to image, with "
        "engine_image_file and engine_image_sha256, or engine_image (docs/image.md)"
    ),
    driver_role="enflame_driver",
    judged_by_role=True,
    health_role="enflame_driver",
    stays_numbered=True,
    peer_module="enflame_peer_mem",
    collectives="eccl",
    collective_variables=collective_variables,
    plain="S60",
    no_fp8="take an AWQ build of the model",
    old_widening=True,
)
