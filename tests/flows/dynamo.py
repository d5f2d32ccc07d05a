"""Streams through Dynamo while something behind it is killed, and the programs that it needs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .clone import Ran

MODEL = "smollm2-135m-instruct"
VLLM = "vllm==0.32.0"
OK = 200


@dataclass(frozen=True)
class Programs:
    """What CPU hosts lack: etcd, NATS, and the front end that the CPU build of vLLM is without."""

    etcd: str
    nats: str
    front_end: str

    @property
    def engine(self) -> dict[str, Any]:
        """What an engine behind Dynamo has in the inventory."""
        return {
            "front": "dynamo",
            "environment": {"VLLM_RUST_FRONTEND_PATH": self.front_end},
        }

    @property
    def variables(self) -> dict[str, Any]:
        return {"router_etcd": self.etcd, "router_nats": self.nats}


def programs(directory: Path) -> Programs:
    """Take them from Debian's packages and from the official wheel, unless they are there."""
    front_end = directory / "vllm/vllm-rs"
    if not front_end.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--only-binary=:all:", "--dest", directory, VLLM], check=True)
        (wheel,) = directory.glob("vllm-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extract("vllm/vllm-rs", directory)
        wheel.unlink()
        front_end.chmod(0o755)
    found = [shutil.which(name, path="/usr/bin:/usr/sbin") for name in ("etcd", "nats-server")]
    if not all(found):
        if not (directory / "usr").exists():
            get = ["apt-get", "download", "etcd-server", "nats-server"]
            subprocess.run(get, cwd=directory, check=True, capture_output=True)
            for package in directory.glob("*.deb"):
                subprocess.run(["dpkg-deb", "-x", package, directory], check=True)
        found = [str(directory / "usr/bin/etcd"), str(directory / "usr/sbin/nats-server")]
    return Programs(str(found[0]), str(found[1]), str(front_end))


def routed(ran: Ran) -> dict[str, Any]:
    """Return what the gate of Dynamo keeps of a run that went well."""
    assert ran.status == 0, ran.output
    kept = [one["values"] for one in ran.evidence("dynamo") if "repeats" in one["values"]]
    assert len(kept) == 1, ran.output
    found: dict[str, Any] = kept[0]
    return found


def post(url: str, key: str, body: dict[str, Any], timeout: float = 120) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(  # noqa: S310 - a server of this test
        f"{url}/chat/completions", json.dumps(body).encode(), headers
    )
    return urllib.request.urlopen(request, timeout=timeout)  # noqa: S310 - as above


def chat(model: str, text: str, tokens: int, **more: Any) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "temperature": 0,
        **more,
    }


def text_of(url: str, key: str, body: dict[str, Any]) -> tuple[int, str]:
    """Return status and text of one request, 0 where no answer came."""
    try:
        with post(url, key, body) as answer:
            return int(answer.status), str(json.load(answer)["choices"][0]["message"]["content"])
    except urllib.error.HTTPError as error:
        return error.code, ""
    except OSError:
        return 0, ""


def status(url: str, key: str, body: dict[str, Any]) -> int:
    """Return the status of one request, 0 where no answer came."""
    return text_of(url, key, body)[0]


@dataclass
class Stream:
    """What a client saw of one stream."""

    text: str = ""
    finished: str = ""
    error: str = ""
    longest_gap: float = 0.0

    @property
    def whole(self) -> bool:
        return bool(self.finished) and not self.error


def stream(url: str, key: str, body: dict[str, Any], began: threading.Barrier) -> Stream:
    """Read one stream to its end; the barrier is met with its first piece."""
    seen, last, met = Stream(), time.monotonic(), False
    try:
        with post(url, key, {**body, "stream": True, "ignore_eos": True}) as answer:
            for line in answer:
                if not line.startswith(b"data:"):
                    seen.error = line.decode().strip() if b"error" in line else seen.error
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    break
                piece = json.loads(data)
                if "error" in piece:
                    seen.error = str(piece["error"])
                for choice in piece.get("choices", ()):
                    seen.finished = choice.get("finish_reason") or seen.finished
                    if said := choice["delta"].get("content"):
                        seen.text += said
                        now = time.monotonic()
                        seen.longest_gap, last = max(seen.longest_gap, now - last), now
                        if not met:
                            met = True
                            began.wait(120)
    except (OSError, ValueError) as error:
        seen.error = f"{type(error).__name__}: {error}"
    return seen


def streams(
    url: str, key: str, model: str, harm: Callable[[], Any] | None = None, count: int = 4
) -> list[Stream]:
    """Return the streams of several clients; once all have begun, harm is done."""
    began = threading.Barrier(count + 1)
    found: list[Stream] = [Stream() for _ in range(count)]

    def one(number: int) -> None:
        body = chat(model, f"Story {number}: write a long story about a ship.", 150)
        found[number] = stream(url, key, body, began)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    began.wait(300)
    if harm:
        harm()
    for thread in threads:
        thread.join(300)
    return found


def told(harm: str, whole: list[Stream], found: list[Stream]) -> int:
    """Print what the clients of some streams saw; return how many texts were wrong.

    A text that was cut off is wrong where it is no beginning of the whole one.
    """
    pairs = list(zip(found, whole, strict=True))
    wrong = [
        one.text
        for one, wanted in pairs
        if not wanted.text.startswith(one.text) or (one.whole and one.text != wanted.text)
    ]
    broken = [one for one in found if not one.whole]
    print(
        f"{harm}: {len(found) - len(broken)} of {len(found)} streams whole, {len(wrong)} wrong, "
        f"longest gap {max(one.longest_gap for one in found):.1f} s; broken off: "
        f"{[(len(one.text), one.error[:100]) for one in broken]}"
    )
    return len(wrong)


class Load:
    """One client that asks short questions, one after the other, until the end of a with block.

    What it asks is answered once before: a text that differs afterwards is wrong.
    """

    QUESTIONS = 6

    def __init__(self, url: str, key: str, model: str) -> None:
        self._asked = (url, key, model)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.longest = 0.0
        self._texts = [self._ask(number)[1] for number in range(self.QUESTIONS)]

    def _ask(self, number: int) -> tuple[int, str]:
        url, key, model = self._asked
        body = chat(model, f"Tell me of the number {number % self.QUESTIONS}.", 6)
        return text_of(url, key, body)

    def _work(self) -> None:
        while not self._ended.is_set():
            began, number = time.monotonic(), sum(self.statuses.values())
            found, text = self._ask(number)
            self.statuses[found] += 1
            self.longest = max(self.longest, time.monotonic() - began)
            if found == OK and text != self._texts[number % self.QUESTIONS]:
                self.wrong.append(text)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(180)

    def told(self, harm: str) -> str:
        """Return and print what the client saw."""
        said = (
            f"{harm}: {self.statuses[OK]} of {sum(self.statuses.values())} answers 200, "
            f"{len(self.wrong)} wrong, longest {self.longest:.1f} s"
        )
        print(said)
        return said
