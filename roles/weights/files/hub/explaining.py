"""Turn what the library and the system raise into words that a person can act on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from answers import BROKEN, headers_of, route, status_of
from folder import full_disk
from huggingface_hub import constants, get_token
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from patience import ATTEMPTS, TRANSIENT, asked_delay
from words import AGAIN, Failure


def explain(error: Any, request: Mapping[str, Any]) -> Failure:
    """Turn what can go wrong into words."""
    if isinstance(error, Failure):
        return error
    model, revision = request["model"], request.get("revision") or ""
    where = f"{model} at {revision}" if revision else model
    token, status = bool(get_token()), status_of(error)
    token_at = "HF_TOKEN" if os.environ.get("HF_TOKEN") else constants.HF_TOKEN_PATH
    last = (str(error).strip().splitlines() or [""])[-1].strip()
    if isinstance(error, GatedRepoError):
        return Failure(
            f"{model} is gated, and access was not granted",
            expected="a token of somebody who was granted access",
            found=f"the token in {token_at}, which was not" if token else "no token",
            where=where,
            fix=f"accept its terms there, set huggingface_token_file to its token, and {AGAIN}",
        )
    if isinstance(error, RevisionNotFoundError):
        return Failure(
            f"{model} has no revision {revision}",
            expected="a branch, a tag or a whole commit of that model",
            found=revision,
            where=route(),
            fix="check the spelling of revision among the engine's vllm_args",
        )
    if token and status == 401 and not isinstance(error, RepositoryNotFoundError):
        return Failure(
            "the hub refused the token",
            expected="a token that is good",
            found="401: it is wrong, or was revoked",
            where=token_at,
            fix=f"put a new token of the hub into the file of huggingface_token_file; {AGAIN}",
        )
    if isinstance(error, RepositoryNotFoundError) or status == 401:
        return Failure(
            f"the hub has no {model} that this host may read",
            expected="the name of a model that is public, or a token that may read it",
            found=f"{status} with {'a token' if token else 'no token'}",
            where=route(),
            fix=f"check the spelling; for a private model set huggingface_token_file, and {AGAIN}",
        )
    if isinstance(error, EntryNotFoundError):
        return Failure(
            f"{model} has no such file any more",
            expected="every file that the hub listed",
            found=last,
            where=where,
            fix="run the stage weights again",
        )
    if isinstance(error, HFValidationError):
        return Failure(
            f"{model} is no name of a model",
            expected="organization/model",
            found=last,
            where=model,
            fix="check the spelling, or name a directory that holds the model",
        )
    if isinstance(error, OfflineModeIsEnabled):
        return Failure(
            f"{model} cannot be downloaded offline",
            expected="HF_HUB_OFFLINE unset",
            found="HF_HUB_OFFLINE is set",
            where="sources_environment, or the environment of this host",
            fix="unset it, or put the model on this host and name its directory",
        )
    if status == 403:
        return Failure(
            f"the token may not read {model}",
            expected="a token with the permission to read this model",
            found=f"403: {last}",
            where=token_at if token else where,
            fix="give the token that permission on the hub, or make one that has it",
        )
    if status in TRANSIENT:
        asked = asked_delay(headers_of(error))
        return Failure(
            "the hub takes no more requests for now" if status == 429 else "the hub is not well",
            expected=f"an answer within {request.get('attempts', ATTEMPTS)} attempts",
            found=f"{status}" + (f", asking to wait {asked:.0f} s" if asked else ""),
            where=route(),
            fix="run the stage weights again later, what is there is kept"
            + ("; with a token the hub allows more" if status == 429 and not token else ""),
        )
    if isinstance(error, BROKEN):
        return Failure(
            f"{model} cannot be downloaded: the connection to the hub fails",
            expected="the hub, reachable from this host",
            found=f"{type(error).__name__}: {last}",
            where=route(),
            fix="set a proxy, HF_ENDPOINT or SSL_CERT_FILE in sources_environment, "
            "or name a directory instead",
        )
    full = full_disk(error, request)
    if full:
        return full
    return Failure(
        f"{model} cannot be downloaded",
        expected="the model hub's answers, and a directory that can be written",
        found=f"{type(error).__name__}: {last}",
        where=route(),
        fix="set a proxy or HF_ENDPOINT in sources_environment, or name a directory instead",
    )
