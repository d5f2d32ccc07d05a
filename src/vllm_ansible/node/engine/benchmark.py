"""What `vllm bench serve` is asked on an engine's first host, what it found, what of it is kept."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, Optional

from .. import launcher
from ..image.command import another
from ..process import process
from . import compilation, result_file
from .refused_request import UNREAD, explain

VERSION = 1
HANDFUL = {"requests": 8, "concurrency": 2, "input_tokens": 64, "output_tokens": 32}
# What the server was told about its tokenizer holds for the client, too.
ABOUT_TOKENIZER = ("--tokenizer", "--tokenizer-mode")
TRUST = "--trust-remote-code"
# What the client needs beside the server's own variables. An image is handed each by its name.
KEY, WITHOUT_PROXY = "OPENAI_API_KEY", ("NO_PROXY", "no_proxy")
# Of all answers: so many may be lost by the client's own fault.
MOST_UNREAD = 0.05
BESIDE = "-benchmark"
# Below the directory of a client on a host of its own: only there it may write.
WRITTEN = "written"


@dataclass(frozen=True)
class Settings:
    """How much is asked of an engine."""

    requests: int
    concurrency: int
    input_tokens: int
    output_tokens: int

    def filled(self, load: Mapping[str, int]) -> Settings:
        """Return the settings, what is 0 from a load, else a handful of short requests."""
        usual = {**HANDFUL, **load}
        return Settings(**{name: given or usual[name] for name, given in asdict(self).items()})


@dataclass(frozen=True)
class Served:
    """One engine whose API this host serves; digest is that of its part of the plan.

    server is the process that is measured, where the engine has several, unless the process router
    runs, which answers for all of them at router_url. load is what is asked of it where nobody says
    otherwise. metrics are the addresses of all its servers, where this host can name them, servers
    the names of their processes on this host.
    """

    name: str
    served_name: str
    url: str
    digest: str
    server: str = ""
    router: str = ""
    router_url: str = ""
    load: Mapping[str, int] = field(default_factory=dict)
    metrics: Sequence[str] = ()
    servers: Sequence[str] = ()

    @property
    def process(self) -> str:
        """Return the name of its serving process."""
        return self.server or f"{self.name}-serve"


@dataclass(frozen=True)
class Client:
    """A load generator on a host of its own, with what it needs in directory there.

    program is the vLLM of that host, url what it asks where that is not the engine itself,
    certificate what it knows the other side by.
    """

    host: str
    program: str
    directory: str
    url: str = ""
    certificate: str = ""

    def asked(self, engine: Served) -> Served:
        """Return the engine by the address that this client asks."""
        return replace(engine, url=self.url) if self.url else engine

    def mark(self, engine: Served) -> dict[str, str]:
        """Return by what figures of this client are known; engine by what is asked."""
        return {"host": self.host, "url": engine.url}

    def tokenizer(self, engine: str) -> str:
        """Return the directory to which an engine's tokenizer is brought."""
        return os.path.join(self.directory, f"tokenizer-{engine}")

    def result(self, name: str) -> str:
        """Return the file that it writes."""
        return os.path.join(self.directory, WRITTEN, f"{name}.json")

    def environment(self, url: str) -> dict[str, str]:
        """Return its environment: what the server was started with is of another host."""
        return {
            # All it needs to know of the model lies there.
            "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "XDG_CACHE_HOME": os.path.join(self.directory, WRITTEN, "cache"),
            **({"SSL_CERT_FILE": self.certificate} if self.certificate else {}),
            **environment({}, url),
        }


def kept_path(cluster_dir: str, engine: str) -> str:
    """Return the file that keeps what was measured last."""
    return os.path.join(cluster_dir, "evidence", f"benchmark-{engine}.json")


def result_path(cluster_dir: str, engine: str, kind: str = "benchmark") -> str:
    """Return the file that the measurement writes, where the engine may write in an image, too."""
    return os.path.join(cluster_dir, "engines", engine, "cache", f"{kind}.json")


def look(
    cluster_dir: str,
    engine: Served,
    found: Optional[Mapping[str, Any]],
    settings: Settings,
    router: Optional[Mapping[str, Any]] = None,
    client: Optional[Client] = None,
) -> dict[str, Any]:
    """Return what is kept of an engine, whether it still holds, and how to measure it again.

    found is what runs of its serving process, as `processes.looks` reports it; router the same of
    what stands before several.
    """
    if found is None or not found["running"]:
        return {"running": False, "why": (found or {}).get("why") or "it was never started here"}
    fingerprint = {
        "plan": engine.digest,
        "instance": found["instance"],
        "settings": asdict(settings),
    }
    if router is not None and router["running"]:
        fingerprint["router"] = engine.router_url
        engine = replace(engine, url=engine.router_url)
    if client:
        engine = client.asked(engine)
        fingerprint["generator"] = client.mark(engine)
    kept = _kept(cluster_dir, engine.name)
    before = kept.get("fingerprint", {})
    # Prompts come from the seed: those of the last time would be answered from the prefix cache.
    seed = kept["seed"] + 1 if before.get("instance") == found["instance"] else 0
    return {
        "running": True,
        "fresh": before == fingerprint,
        "reason": _reason(before, fingerprint),
        "figures": kept.get("figures", {}) if before == fingerprint else {},
        "fingerprint": fingerprint,
        "seed": seed,
        "logs": compilation.logs(cluster_dir, engine.name),
        **how(cluster_dir, engine, settings, seed, "benchmark", client=client),
    }


def how(
    cluster_dir: str,
    engine: Served,
    settings: Settings,
    seed: int,
    kind: str,
    more: Sequence[str] = (),
    prompts: Sequence[str] = (),
    client: Optional[Client] = None,
) -> dict[str, Any]:
    """Return how to measure an engine whose server was started: command, environment, user.

    kind names what is written, more are further options of the client, prompts those that say where
    its prompts come from. result is where it is on this host: a client elsewhere writes it to
    written, from where it is brought here. tokenizer is a directory of this host.
    """
    record = process.read_json(process.Files(cluster_dir, engine.process).record) or {}
    tokenizer = (_option(record["argv"], "--tokenizer") or _served(record["argv"]))[1]
    if client:
        argv = _elsewhere(record["argv"], client, engine.name)
        return {
            "argv": [
                *command(argv, engine, settings, seed, client.result(kind), prompts=prompts),
                *more,
            ],
            "environment": client.environment(engine.url),
            # Not where the engine may write: it is brought here by root.
            "result": os.path.join(cluster_dir, "evidence", f"{kind}-{engine.name}.result"),
            "written": client.result(kind),
            "tokenizer": tokenizer,
            "user": "",
            "cleanup": [],
        }
    contained = bool(record.get("cleanup"))
    result = result_path(cluster_dir, engine.name, kind)
    argv = command(record["argv"], engine, settings, seed, result, contained, prompts)
    return {
        "argv": [*argv, *more],
        "environment": environment(record["environment"], engine.url),
        "result": result,
        "written": result,
        "tokenizer": tokenizer,
        # Whoever starts a container is not who is in it.
        "user": record.get("user") or "",
        "cleanup": [*record["cleanup"][:-1], record["cleanup"][-1] + BESIDE]
        if record.get("cleanup")
        else [],
    }


def command(
    argv: Sequence[str],
    engine: Served,
    settings: Settings,
    seed: int,
    result: str,
    contained: bool = False,
    prompts: Sequence[str] = (),
) -> list[str]:
    """Return the measuring command that goes with a serving one: `<bin>/vllm serve <model> ...`.

    contained: what comes before `serve` starts a container, and the measurement needs its own.
    Without prompts of somewhere else they are random. Requests go out as they come where no
    concurrency is given.
    """
    program, serve = argv[: argv.index("serve")], _served(argv)
    told = [word for name in ABOUT_TOKENIZER for word in _option(serve, name)]
    return [
        *(another(program, BESIDE, (KEY, *WITHOUT_PROXY)) if contained else program),
        "bench",
        "serve",
        "--base-url",
        engine.url,
        "--model",
        engine.served_name,
        *(told if "--tokenizer" in told else ["--tokenizer", serve[1], *told]),
        *([TRUST] if TRUST in serve else []),
        *(prompts or ("--dataset-name", "random")),
        "--num-prompts",
        str(settings.requests),
        *(("--max-concurrency", str(settings.concurrency)) if settings.concurrency else ()),
        *(() if prompts else _lengths(settings)),
        "--temperature",
        "0",
        "--seed",
        str(seed),
        "--save-result",
        "--save-detailed",
        "--result-filename",
        result,
    ]


def _served(argv: Sequence[str]) -> list[str]:
    """Return the part of a serving command from `serve` on, whose second word is the model."""
    return list(argv[argv.index("serve") :])


def _elsewhere(argv: Sequence[str], client: Client, engine: str) -> list[str]:
    """Return a serving command as a client on another host takes it: what is about tokens."""
    mode = _option(argv, "--tokenizer-mode")
    trust = [TRUST] if TRUST in argv else []
    return [client.program, "serve", client.tokenizer(engine), *mode, *trust]


def _lengths(settings: Settings) -> list[str]:
    """Return the options for the lengths of random prompts and their answers."""
    lengths = {"--random-input-len": settings.input_tokens}
    lengths["--random-output-len"] = settings.output_tokens
    return [word for name, value in lengths.items() for word in (name, str(value))]


def _option(argv: Sequence[str], name: str) -> list[str]:
    """Return an option with its value as it stands in a command, or nothing."""
    return [name, argv[argv.index(name) + 1]] if name in argv else []


def environment(serve: Mapping[str, str], url: str) -> dict[str, str]:
    """Return the server's own environment, without a proxy between the two."""
    host = url.split("://", 1)[-1].rsplit(":", 1)[0].strip("[]")
    return {**serve, **dict.fromkeys(WITHOUT_PROXY, host)}


def keep(cluster_dir: str, engine: Served, seen: Mapping[str, Any], log: str) -> dict[str, Any]:
    """Take the result of a measurement away, judge it, and keep its figures.

    seen is what `look` returned before it. What was kept before is gone either way.
    """
    with suppress(FileNotFoundError):
        os.unlink(kept_path(cluster_dir, engine.name))
    shown = shlex.join(seen["argv"])
    raw = result_file.taken(seen["result"], engine.name, log, shown)
    settings = Settings(**seen["fingerprint"]["settings"])
    if "router" in seen["fingerprint"]:
        engine = replace(engine, url=seen["fingerprint"]["router"])
    if "generator" in seen["fingerprint"]:
        engine = replace(engine, url=seen["fingerprint"]["generator"]["url"])
    judge(raw, engine, settings, cluster_dir, shown)
    measured = figures(raw, engine, settings)
    if "generator" in seen["fingerprint"]:
        measured["generator"] = seen["fingerprint"]["generator"]
    measured["compiled"] = compilation.since(seen["logs"])
    if "router" in seen["fingerprint"]:
        measured["router"] = seen["fingerprint"]["router"]
    launcher.write_json(
        kept_path(cluster_dir, engine.name),
        {
            "version": VERSION,
            "fingerprint": seen["fingerprint"],
            "seed": seen["seed"],
            "command": shown,
            "figures": measured,
        },
        mode=0o644,
    )
    return measured


def judge(
    raw: Mapping[str, Any], engine: Served, settings: Settings, cluster_dir: str, shown: str
) -> None:
    """Refuse a measurement in which a request failed or came back empty."""
    good = answered(raw)
    if good + unread(raw) == settings.requests:
        return
    error = next((last_line(one) for one in raw["errors"] if one), "an answer without tokens")
    asked = engine.router if engine.url == engine.router_url else engine.process
    cause, fix = explain(error, asked, cluster_dir)
    raise process.ProcessError(
        f"{engine.name} answered {good} of {settings.requests} requests.",
        expected=f"{settings.requests} answers of {settings.output_tokens} tokens",
        found=f"{settings.requests - good} failed, the first with: {error}",
        where=engine.url,
        cause=cause,
        fix=fix,
        command=shown,
    )


def answered(raw: Mapping[str, Any]) -> int:
    """Return how many requests came back with tokens."""
    return min(sum(1 for tokens in raw["output_lens"] if tokens), int(raw["completed"]))


def unread(raw: Mapping[str, Any]) -> int:
    """Return how many answers the client could not read by its own fault; 0 if they are many."""
    found = sum(1 for error in raw["errors"] if error and last_line(error).endswith(UNREAD))
    return found if found <= MOST_UNREAD * len(raw["errors"]) else 0


def figures(raw: Mapping[str, Any], engine: Served, settings: Settings) -> dict[str, Any]:
    """Return the figures of a measurement, with what was asked."""
    return {
        "name": engine.name,
        "requests": settings.requests,
        "failed": settings.requests - raw["completed"],
        **({"unread": lost} if (lost := unread(raw)) else {}),
        "concurrency": settings.concurrency,
        "input_tokens": settings.input_tokens,
        "output_tokens": settings.output_tokens,
        "ttft_ms_median": round(raw["median_ttft_ms"], 1),
        "ttft_ms_p99": round(raw["p99_ttft_ms"], 1),
        "inter_token_latency_ms_median": round(raw["median_itl_ms"], 1),
        "output_tokens_per_second": round(raw["output_throughput"], 1),
        "duration_seconds": round(raw["duration"], 2),
        "measured_at": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
    }


def _kept(cluster_dir: str, engine: str) -> dict[str, Any]:
    """Return what is kept; what cannot be read is measured again."""
    try:
        kept = process.read_json(kept_path(cluster_dir, engine)) or {}
    except process.ProcessError:
        return {}
    return kept if kept.get("version") == VERSION else {}


def _reason(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Say why what is kept does not hold, empty when it does."""
    if not before:
        return "it was never measured here"
    said = {
        "instance": "its server was started again",
        "plan": "its plan changed",
        "settings": "something else is asked of it",
        "router": "a router came or went",
        "generator": "the load comes from another host, or by another address",
    }
    return ", ".join(words for name, words in said.items() if before.get(name) != now.get(name))


def last_line(error: str) -> str:
    """Return the line of a traceback that names the error."""
    return error.strip().splitlines()[-1]
