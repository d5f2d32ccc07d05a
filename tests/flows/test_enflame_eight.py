"""As many ranks as `inventories/enflame` declares, each of them a real engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .enflame import HOSTS, Enflame

pytestmark = [pytest.mark.engine, pytest.mark.lab, pytest.mark.soak]
RANKS = 8


@pytest.fixture
def site(real_hosts: None, tmp_path: Path) -> Iterator[Enflame]:
    site = Enflame(tmp_path, RANKS // HOSTS)
    try:
        site.equip()
        yield site
    finally:
        site.down()


def test_eight_ranks_answer_behind_one_address(site: Enflame) -> None:
    ran = site.run()
    assert ran.status == 0, ran.output
    (router,) = ran.evidence("router")
    assert [one["proven"] for one in router["values"]["ranks"]] == [True] * RANKS
    answers = site.answers(router["values"]["url"])
    assert len(answers) == RANKS, answers
    assert site.run(playbook="playbooks/teardown.yml").status == 0
