"""The vendor's release, whose ranks step together or not at all, by the names of its builds."""

from __future__ import annotations

import pytest

from vllm_ansible.plan.servers import pinned


@pytest.mark.parametrize(
    ("version", "steps_together"),
    [
        *((one, True) for one in ("0.9.2", "0.9.2+gcu", "0.9.2rc2", "0.9.2.dev0+g1a2b3c")),
        *((one, False) for one in ("0.9.20", "0.9.1", "0.32.0", "")),
    ],
)
def test_every_build_of_the_vendors_release_is_known(version: str, steps_together: bool) -> None:
    assert pinned("enflame", version) == steps_together
