"""What it answers: vLLM's forms, with a sentence that it knows and numbers that it makes up."""

import math
import time
import zlib
from typing import Any

KNOWN = {"capital of France": "The capital of France is Paris."}
UNKNOWN = "I am only a stand-in."
# What is empty unless somebody asks for it.
EMPTY_CHOICE = dict.fromkeys(("stop_reason", "token_ids", "routed_experts"))
EMPTY_MESSAGE = dict.fromkeys(("refusal", "annotations", "audio", "function_call", "reasoning"))
EMPTY_TRANSFER = dict.fromkeys(("kv_transfer_params", "ec_transfer_params", "metrics"))
EMPTY_PROMPT = dict.fromkeys(("prompt_logprobs", "prompt_token_ids", "prompt_text"))
PERMISSION = {
    "id": "modelperm-1",
    "object": "model_permission",
    "allow_create_engine": False,
    "allow_sampling": True,
    "allow_logprobs": True,
    "allow_search_indices": False,
    "allow_view": True,
    "allow_fine_tuning": False,
    "organization": "*",
    "group": None,
    "is_blocking": False,
}
VOCABULARY = 49152
END = "<|im_end|>"


class Refused(Exception):
    """A request that is not answered: its HTTP status, and vLLM's words."""

    def __init__(self, status: int, kind: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": status}
        }


def pieces(text: str) -> list[str]:
    """Return the tokens of a text: its words, each with the blank before it."""
    found: list[str] = []
    for word in text.split(" "):
        found.append(f" {word}" if found else word)
    return found


def number(token: str) -> int:
    """Return the number of a token, always the same."""
    return zlib.crc32(token.encode()) % VOCABULARY


def logprob(token: str, place: int) -> float:
    """Return a log probability that is finite, not zero, and not that of every other token."""
    return -0.01 - math.sqrt(number(f"{place}{token}") % 997) / 40


class Model:
    """What is served under one name."""

    def __init__(self, name: str, root: str, length: int) -> None:
        self.name, self.root, self.length = name, root, length
        self.created = int(time.time())
        self.count = self.tokens = 0

    def models(self) -> dict[str, Any]:
        one = {"id": self.name, "object": "model", "created": self.created, "owned_by": "vllm"}
        permission = {**PERMISSION, "created": self.created}
        more = {"root": self.root, "parent": None, "max_model_len": self.length}
        return {"object": "list", "data": [{**one, **more, "permission": [permission]}]}

    def metrics(self) -> str:
        counts = {"request_success_total": self.count, "generation_tokens_total": self.tokens}
        return "".join(f'vllm:{name}{{engine="0"}} {n}\n' for name, n in counts.items())

    def chat(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check(body, "messages")
        asked = str(body["messages"][-1]["content"])
        text = next((said for words, said in KNOWN.items() if words in asked), UNKNOWN)
        tokens, reason = self._cut([*pieces(text), END], body, len(pieces(asked)))
        said = [one for one in tokens if one != END]
        choice: dict[str, Any] = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(said), **EMPTY_MESSAGE},
            "logprobs": None,
            "finish_reason": reason,
            **EMPTY_CHOICE,
        }
        if body.get("logprobs"):
            content = [
                {
                    "token": one,
                    "logprob": logprob(one, place),
                    "bytes": list(one.encode()),
                    "top_logprobs": [],
                }
                for place, one in enumerate(tokens)
            ]
            choice["logprobs"] = {"content": content}
        reply = self._reply("chatcmpl", "chat.completion", choice, len(pieces(asked)), len(tokens))
        return {**reply, **EMPTY_PROMPT}

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        self._check(body, "prompt")
        prompt = pieces(str(body["prompt"]))
        tokens, reason = self._cut([" so"] * self.length, body, len(prompt))
        choice: dict[str, Any] = {
            "index": 0,
            "text": "".join(tokens),
            "logprobs": None,
            "finish_reason": reason,
            **EMPTY_CHOICE,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
        }
        if body.get("logprobs") is not None:
            names = [f"token_id:{number(one)}" for one in tokens]
            numbers = [logprob(one, place) for place, one in enumerate(tokens)]
            offsets = [sum(map(len, names[:place])) for place in range(len(names))]
            choice["logprobs"] = {
                "text_offset": offsets,
                "token_logprobs": numbers,
                "tokens": names,
                "top_logprobs": [{name: one} for name, one in zip(names, numbers, strict=True)],
            }
        if body.get("prompt_logprobs") is not None:
            choice["prompt_logprobs"] = [None] + [
                {
                    str(number(one)): {
                        "logprob": logprob(one, place),
                        "rank": 1,
                        "decoded_token": one,
                    }
                }
                for place, one in enumerate(prompt)
                if place
            ]
        return self._reply("cmpl", "text_completion", choice, len(prompt), len(tokens))

    def _check(self, body: dict[str, Any], what: str) -> None:
        if body.get("model") != self.name:
            wrong = f"The model `{body.get('model')}` does not exist."
            message = f"{wrong} Valid aliases: {self.name}."
            raise Refused(404, "NotFoundError", message, "model")
        if not body.get(what):
            message = (
                "1 validation error:\n"
                f"  {{'type': 'missing', 'loc': 'body.{what}', 'msg': 'Field required', "
                f"'input': '<dict of {len(body)} items>'}}"
            )
            raise Refused(400, "Bad Request", message, f"body.{what}")
        if body.get("stream"):
            raise Refused(400, "Bad Request", "a stand-in does not stream")

    def _cut(self, tokens: list[str], body: dict[str, Any], asked: int) -> tuple[list[str], str]:
        most = int(body.get("max_tokens") or self.length - asked)
        if asked + most > self.length:
            message = (
                f"max_tokens={most} cannot be greater than max_model_len={self.length}. Please "
                f"request fewer output tokens. (parameter=max_tokens, value={most})"
            )
            raise Refused(400, "BadRequestError", message, "max_tokens")
        return (tokens, "stop") if len(tokens) <= most else (tokens[:most], "length")

    def _reply(
        self, kind: str, name: str, choice: dict[str, Any], asked: int, answered: int
    ) -> dict[str, Any]:
        self.count += 1
        self.tokens += answered
        usage = {
            "prompt_tokens": asked,
            "total_tokens": asked + answered,
            "completion_tokens": answered,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        }
        return {
            "id": f"{kind}-{self.count}",
            "object": name,
            "created": int(time.time()),
            "model": self.name,
            "choices": [choice],
            "usage": usage,
            "service_tier": None,
            "system_fingerprint": "vllm-stand-in",
            **EMPTY_TRANSFER,
        }
