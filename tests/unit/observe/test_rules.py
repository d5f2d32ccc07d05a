"""Each rule fires by the series that its cause makes, and none on those of a healthy engine.

promtool of the distribution's Prometheus evaluates them. `causes.yml` has for each alert the series
of its cause, and the labels it is to carry; `healthy.json` has what Prometheus had scraped in a run
of a real engine behind a real door under load, where nothing was wrong.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.flows.test_observe import EMPTY
from tests.unit.door.running import make_certificate
from tests.unit.node.observe.test_main import OPENSSL, serving
from vllm_ansible.node.accelerators import nvml_metrics
from vllm_ansible.node.observe import main

ROOT = Path(__file__).parents[3]
DATA = Path(__file__).parent / "data"
RULES = ROOT / "roles/observe/files/rules.yml"
DASHBOARD = ROOT / "roles/observe/files/dashboard.json"
PROMTOOL = shutil.which("promtool")
ALWAYS = "AlertsArrive"
# As vLLM publishes them (vllm/v1/metrics/loggers.py), where its prefix cache is on.
VLLM = ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_queries_total")

lacking = pytest.mark.skipif(PROMTOOL is None, reason="no promtool (Debian's package prometheus)")


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def alerts() -> dict[str, dict[str, Any]]:
    return {rule["alert"]: rule for rule in rules() if "alert" in rule}


def causes() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DATA / "causes.yml").read_text())
    return found


def promtool(directory: Path, tests: list[dict[str, Any]]) -> tuple[bool, str]:
    """Evaluate tests of the rules."""
    assert PROMTOOL is not None
    shutil.copy(RULES, directory / "rules.yml")
    document = {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": tests}
    (directory / "test.yml").write_text(yaml.safe_dump(document))
    command = [PROMTOOL, "test", "rules", "test.yml"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def fires(name: str, cause: dict[str, Any]) -> dict[str, Any]:
    """Return the test that an alert fires by its cause, with all its words."""
    rule = alerts()[name]
    return {
        "interval": "15s",
        "input_series": [
            {"series": series, "values": str(values)} for series, values in cause["series"].items()
        ],
        "alert_rule_test": [
            {
                "eval_time": cause["at"],
                "alertname": name,
                "exp_alerts": [
                    {
                        "exp_labels": {**cause["labels"], **rule["labels"]},
                        "exp_annotations": cause["says"],
                    }
                ],
            },
            # Not before its time: what lasts a moment calls nobody.
            *(
                {"eval_time": cause["quiet"], "alertname": name, "exp_alerts": []}
                for _ in range(1)
                if "quiet" in cause
            ),
        ],
    }


def test_each_alert_has_a_cause_to_be_tested_by_and_words_for_people() -> None:
    assert set(causes()) == set(alerts()) - {ALWAYS}
    for name, rule in alerts().items():
        assert set(rule["annotations"]) == {"summary", "fix"}, name
        assert rule["labels"]["severity"] in {"critical", "warning", "none"}, name


def test_playbooks_that_alerts_name_exist() -> None:
    named = set(re.findall(r"playbooks/[a-z_]+\.yml", RULES.read_text()))
    assert len(named) > 5
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


@lacking
def test_each_alert_fires_by_the_series_that_its_cause_makes(tmp_path: Path) -> None:
    passed, said = promtool(tmp_path, [fires(name, one) for name, one in causes().items()])
    assert passed, said


@lacking
def test_a_rule_with_another_limit_fails_its_test(tmp_path: Path) -> None:
    """What promtool is asked can fail: the cause at half its strength."""
    cause = causes()["CacheFull"]
    weak = {**cause, "series": dict.fromkeys(cause["series"], "0.5x40")}
    passed, said = promtool(tmp_path, [fires("CacheFull", weak)])
    assert not passed and "CacheFull" in said


def quiet(healthy: dict[str, Any]) -> dict[str, Any]:
    """Return the test that none of the alerts fires on these series."""
    return {
        "interval": healthy["interval"],
        "input_series": healthy["input_series"],
        "alert_rule_test": [
            {"eval_time": time, "alertname": name, "exp_alerts": []}
            for time in healthy["eval_times"]
            for name in alerts()
            if name != ALWAYS
        ],
    }


@lacking
def test_no_alert_fires_on_what_a_healthy_engine_made(tmp_path: Path) -> None:
    healthy = json.loads((DATA / "healthy.json").read_text())
    names = {series["series"].partition("{")[0] for series in healthy["input_series"]}
    # Every rule that a machine without accelerators can be healthy for has something to look at.
    looked_at = {"up", "vllm:num_requests_running", "vllm:inter_token_latency_seconds_bucket"}
    assert looked_at | {"vllm_written_timestamp_seconds", "node_network_speed_bytes"} <= names
    passed, said = promtool(tmp_path, [quiet(healthy)])
    assert passed, said

    # Beside a lower limit the same engine is too slow, so its series are looked at.
    for series in healthy["input_series"]:
        if series["series"].startswith("vllm_limit_inter_token_seconds"):
            series["values"] = "0.01x20"
    passed, said = promtool(tmp_path, [quiet(healthy)])
    assert not passed and "InterTokenSlow" in said


def queries() -> list[str]:
    """Return every query of the dashboard."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_the_dashboard_asks_for_what_rules_record_and_programs_publish() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    asked = {
        name for query in queries() for name in re.findall(r"\b(?:engine|cluster):\w+:?\w*", query)
    }
    assert asked <= recorded and asked


def unreadable(dashboard: dict[str, Any]) -> list[str]:
    """Return what Grafana would not show as written (kinds/dashboard of its 10.1, and its grid)."""
    variables = {one["name"]: one["type"] for one in dashboard["templating"]["list"]}
    found, taken = [], set()
    if not 8 <= len(dashboard["uid"]) <= 40:
        found.append("uid")
    found += [name for name, kind in variables.items() if kind not in {"query", "datasource"}]
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + right, place["y"] + down)
            for right in range(place["w"])
            for down in range(place["h"])
        }
        if not cells or taken & cells or max(column for column, _ in cells) >= 24:
            found.append(f"place of {panel['title']}")
        taken |= cells
        targets = panel.get("targets", [])
        if len({one["refId"] for one in targets}) < len(targets):
            found.append(f"refId of {panel['title']}")
        used = set(re.findall(r"\$\{?(\w+)", json.dumps([targets, panel.get("datasource")])))
        found += [f"${name}" for name in sorted(used - set(variables))]
    return found


def test_the_dashboard_is_laid_out_as_grafana_reads_it() -> None:
    def read() -> Any:
        return json.loads(DASHBOARD.read_text())

    assert unreadable(read()) == []
    # It can fail: each kind of fault once.
    spoilt = read()
    first, second = spoilt["panels"][1:3]
    second["gridPos"], second["title"] = dict(first["gridPos"]), "Second"
    first["targets"] *= 2
    first["targets"][0]["expr"] += '{a=~"$nobody"}'
    spoilt["templating"]["list"][0]["type"], spoilt["uid"] = "mood", "short"
    faults = ["uid", "datasource", f"refId of {first['title']}", "$nobody", "place of Second"]
    assert unreadable(spoilt) == faults


@lacking
@pytest.mark.skipif(not Path(OPENSSL).exists(), reason="no openssl here")
def test_a_certificate_that_is_served_and_ends_in_two_days_calls(tmp_path: Path) -> None:
    """By its real cause, from a real server to the alert; promtool's clock begins at 0."""
    make_certificate(tmp_path)
    with serving(tmp_path) as place:
        end = main.certificate_end(place, OPENSSL)
    assert end is not None

    def calls(left: float) -> tuple[bool, str]:
        expected = [{"labels": "{}", "value": 1}]
        asked = 'count(ALERTS{alertname="CertificateEnds",alertstate="firing"})'
        series = f'{main.END}{{certificate="door"}}'
        test = {
            "interval": "15s",
            "input_series": [{"series": series, "values": f"{left:.0f}x40"}],
            "promql_expr_test": [{"expr": asked, "eval_time": "5m", "exp_samples": expected}],
        }
        return promtool(tmp_path, [test])

    passed, said = calls(end - time.time())
    assert passed, said
    assert not calls(end - time.time() + 13 * 86400)[0]


@lacking
def test_each_query_that_finds_nothing_beside_one_engine_finds_what_is_published(
    tmp_path: Path,
) -> None:
    """Of devices, routers, limits, refusals, spend: a real Prometheus asks for the others.

    Beside a real engine in the lab `tests/flows/test_observe.py` excuses these alone.
    """
    asked = [re.sub(r"\$\w+", ".*", query) for query in queries() if EMPTY.search(query)]
    assert len(asked) >= 15
    series = {f'{name}{{host="h1",device="0"}}': "1x40" for name in nvml_metrics.HELP}
    series |= {key: one for cause in causes().values() for key, one in cause["series"].items()}
    series |= {f'{name}{{engine="chat"}}': "0+1x40" for name in VLLM}
    assert len({query for query in asked if "vllm_device" in query}) == 7

    def found(query: str) -> dict[str, Any]:
        expected = [{"labels": "{}", "value": 1}]
        return {
            "interval": "15s",
            "input_series": [{"series": key, "values": str(one)} for key, one in series.items()],
            "promql_expr_test": [
                {"expr": f"count({query}) > bool 0", "eval_time": "5m", "exp_samples": expected}
            ],
        }

    passed, said = promtool(tmp_path, [found(query) for query in asked])
    assert passed, said
    # It can fail: a figure that nobody publishes.
    passed, said = promtool(tmp_path, [found("vllm_device_mood")])
    assert not passed and "vllm_device_mood" in said


def test_the_dashboard_offers_engines_of_which_nothing_was_planned() -> None:
    """It listed those that had a limit."""
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    assert not [one["name"] for one in variables if "vllm_limit" in one.get("definition", "")]


@lacking
def test_without_a_limit_its_alert_does_not_fire(tmp_path: Path) -> None:
    tests = []
    for name in ("FirstTokenSlow", "InterTokenSlow"):
        cause = causes()[name]
        series = {
            key: one for key, one in cause["series"].items() if not key.startswith("vllm_limit")
        }
        assert len(series) == len(cause["series"]) - 1
        test = fires(name, {**cause, "series": series})
        test["alert_rule_test"][0]["exp_alerts"] = []
        tests.append(test)
    passed, said = promtool(tmp_path, tests)
    assert passed, said
