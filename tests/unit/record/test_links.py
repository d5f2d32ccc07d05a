"""The report shows what links carried: every pair as a square, and the row that fails."""

from __future__ import annotations

import re
from pathlib import Path

from vllm_ansible.record.heat_map import heat_map

from .conftest import Project
from .test_report import evidence, good, page, words

PAIRS = [
    {"first": "gh-01", "second": "gh-02", "gbs": 44.0},
    {"first": "gh-01", "second": "gh-03", "gbs": 12.4},
    {"first": "gh-02", "second": "gh-03", "gbs": 43.0},
]
ROW = {
    "check": "links",
    "where": "gh-03",
    "verdict": "fail",
    "what": "the link of gh-03",
    "found": "12.4 GB/s",
    "expected": "44.0 GB/s",
}


def test_every_pair_is_a_square_and_a_slow_one_is_red() -> None:
    picture = heat_map(PAIRS)
    assert picture.count("<title>") == 6
    assert re.search(r'fill="#b42318"><title>gh-01 - gh-03: 12\.4 GB/s', picture)
    assert re.search(r'fill="#4f9d69"><title>gh-02 - gh-01: 44 GB/s', picture)
    assert heat_map([]) == ""


def test_a_pair_that_was_not_measured_says_so() -> None:
    assert "gh-02 - gh-03: not measured" in heat_map(PAIRS[:2])


def test_names_from_an_inventory_cannot_break_the_page() -> None:
    picture = heat_map([{"first": "<script>", "second": "b", "gbs": 1.0}])
    assert "<script>" not in picture


def test_sixty_four_hosts_still_fit() -> None:
    names = [f"h{number:02}" for number in range(64)]
    pairs = [{"first": a, "second": b, "gbs": 1.0} for a in names for b in names if a < b]
    width = re.search(r'viewBox="0 0 (\d+)', heat_map(pairs))
    assert width
    assert int(width[1]) <= 1040


def test_the_report_holds_figures_rows_and_picture(tmp_path: Path) -> None:
    one = {"operation": "all_reduce", "bytes": 1 << 30, "algbw": 22.6, "busbw": 44.8}
    links = evidence(3, "links", across={"all_reduce": one}, pairs=PAIRS, rows=[ROW])
    html = page(tmp_path, [*good(), links])
    seen = words(html)
    assert "all_reduce 1,024 MiB 22.6 GB/s 44.8 GB/s" in seen
    assert "the link of gh-03 gh-03 fail 12.4 GB/s 44.0 GB/s" in seen
    assert "<svg" in html


def test_a_gate_that_fails_leaves_its_figures_in_the_record(project: Project) -> None:
    (project.directory / "library" / "failing_gate.py").write_text(
        "from ansible.module_utils.basic import AnsibleModule\n"
        "module = AnsibleModule({'evidence': {'type': 'dict'}}, supports_check_mode=True)\n"
        "module.fail_json(msg='slow', evidence=module.params['evidence'])\n"
    )
    found = {"gate": "links", "summary": "12.4 GB/s", "values": {"pairs": PAIRS}}
    gate = {"name": "Judge", "failing_gate": {"evidence": found}, "run_once": True}
    project.play({"tags": ["verify"], "tasks": [gate]})
    ran = project.run()
    assert [one["msg"] for one in ran.of("failure")] == ["slow"]
    (kept,) = ran.of("evidence")
    assert kept["values"] == {"pairs": PAIRS}
