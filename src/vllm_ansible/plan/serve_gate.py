"""The gate of the stage serve: every engine of the plan has answered its question."""

from __future__ import annotations

from typing import Any

from vllm_ansible.gate import Case
from vllm_ansible.plan.arguments import whole_number
from vllm_ansible.plan.estimate.layouts.printed import beside
from vllm_ansible.plan.verdicts import ranks_asked


def judge(case: Case) -> dict[str, Any]:
    """Return the evidence, or fail with the engines that nobody has waited for.

    of: verdicts, what engine_verdicts returned; engines, those of the plan that hosts of this run
    serve; api_key_file, where the key lies on the controller; routers, the addresses that stand
    before the ranks of engines, by name; loading, what loading_forecast returned of those that
    were started.
    """
    wanted = case.of
    ready = wanted["verdicts"]["ready"]
    routers = wanted.get("routers") or {}
    loading = wanted.get("loading") or {}
    missing = [one["name"] for one in wanted["engines"] if one["name"] not in ready]
    missing += [
        rank
        for one in wanted["engines"]
        if "answer" in ready.get(one["name"], {})
        for rank in ranks_asked(one, ready[one["name"]])
    ]
    if not wanted["engines"]:
        return {
            "failed": True,
            "msg": "there is no engine to ask",
            "expected": "an engine of the plan that a host of this run serves",
            "found": "none",
            "where": "plan.json in the cluster's directory on the first host",
            "fix": "run without --limit, or with the hosts of an engine",
        }
    if missing:
        return {
            "failed": True,
            "msg": f"no answer was asked of {', '.join(missing)}",
            "expected": "an answer from every engine of the plan",
            "found": f"answers from {', '.join(ready) or 'none'}",
            "where": ", ".join(missing),
            "fix": "run without --limit, or with all hosts of these engines",
        }
    answered = [(one, ready[one["name"]]) for one in wanted["engines"]]
    # An answer of random weights may well be empty: its tokens and numbers were judged.
    if any("answer" not in verdict for _, verdict in answered):
        return {"skipped": True, "msg": "check mode: nothing was asked"}
    engines = [
        {
            "name": engine["name"],
            "model": engine["model"],
            "served_name": engine["served_name"],
            **_reached(engine["name"], verdict, routers),
            **_dashboard(engine),
            "max_num_seqs": whole_number(engine["arguments"], "max_num_seqs"),
            "api_key_file": wanted["api_key_file"],
            "question": verdict["question"],
            "answer": verdict["answer"],
            "reasoning": verdict.get("reasoning", ""),
            "seconds": verdict["seconds"],
            # Of an engine that served already nothing was seen of its start.
            **({"start_seconds": verdict["start"]} if verdict.get("start") else {}),
            "attention": _attention(verdict.get("attention") or {}),
            "memory": beside(engine.get("estimate") or {}, verdict.get("figures") or {}),
            **_loading(loading.get(engine["name"]), verdict.get("figures") or {}),
        }
        for engine, verdict in answered
    ]
    misses = [
        f"{engine['name']}: {words}"
        for engine in engines
        for words in [*engine["memory"]["misses"], *engine["attention"]["misses"]]
    ]
    return {
        "changed": False,
        "warns": misses,
        "evidence": {
            "gate": "serve",
            "summary": "; ".join(_line(engine) for engine in engines),
            "values": {"engines": engines},
        },
    }


def _reached(name: str, verdict: dict[str, Any], routers: dict[str, str]) -> dict[str, Any]:
    """Return where an engine answers, and each of several ranks, behind a router or alone."""
    behind = name in routers
    return {
        "endpoint": f"{routers[name]}/v1" if behind else verdict["endpoint"],
        **({"router": True} if behind else {}),
        **({"ranks": verdict["ranks"]} if "ranks" in verdict else {}),
    }


def _loading(expected: dict[str, Any] | None, figures: dict[str, float]) -> dict[str, Any]:
    """Return how long loading was said to take, and how long the engine says that it took."""
    if not expected:
        return {}
    said = {name: expected[name] for name in ("hosts", "advice")}
    took = figures.get("loading_seconds")
    return {"loading": {"expected_seconds": expected["seconds"], "seconds": took, **said}}


def _attention(printed: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the attention backends in use, and in `misses` those passed over though asked for."""
    used = printed.get("used", [])
    instead = ", ".join(used) or "another one, which it does not name"
    return {
        "used": used,
        "misses": [
            f"vLLM was asked for the attention backend {name} and uses {instead}"
            for name in printed.get("refused", [])
        ],
    }


def _dashboard(engine: dict[str, Any]) -> dict[str, Any]:
    """Return on which host's loopback address Ray shows what it does, if it is Ray's engine."""
    if engine.get("executor") != "ray":
        return {}
    return {"dashboard": {"host": engine["hosts"][0], "port": engine["ports"]["dashboard"]}}


def _line(engine: dict[str, Any]) -> str:
    """Return one line about an engine that answered."""
    answer = f'"{_short(engine["answer"])}"'
    if engine["reasoning"]:
        thought = f'it thinks "{_short(engine["reasoning"])}"'
        answer = f"{answer}; {thought}" if engine["answer"].strip() else thought
    where = ", ".join(rank["endpoint"] for rank in engine.get("ranks", ()))
    where = f"{len(engine['ranks'])} ranks ({where})" if where else engine["endpoint"]
    # Of a set of prefill and decode the endpoint is the router's, and its engines are listed apart.
    if engine.get("router") and engine.get("ranks"):
        where = f"{engine['endpoint']} before {where}"
    return f'{engine["name"]} at {where}: "{engine["question"]}" - {answer}'


def _short(text: str) -> str:
    """Return the begin of a text in one line."""
    words = " ".join(text.split())
    return words if len(words) <= 60 else f"{words[:57]}..."
