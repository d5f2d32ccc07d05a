"""One request to an OpenAI-compatible server, and what became of it."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp

from vllm_ansible.frozen import frozen
from vllm_ansible.record.shapes import HIDDEN

from .answers import Answer, NoAnswer, Stream, whole, words_of
from .patience import retry_after
from .prompts import Prompt

CONNECT_SECONDS = 30.0
# uvicorn closes a connection that was idle for 5 s: nothing is sent on one that is about to go.
IDLE_SECONDS = 2.0
# No prompt will be answered while this is so.
OF_ALL = {401: "another key", 403: "another key", 404: "another --url or --model"}
PASSING = (408, 425, 429, 500, 502, 503, 504)


@frozen
class Target:
    """Where prompts go: url ends in /v1; key is empty where the server asks for none."""

    url: str
    model: str
    key: str
    ca: str | None = None


@frozen
class Limits:
    """How long one request may take, and how long a stream may say nothing; seconds."""

    total: float
    silence: float


class Unsent(Exception):
    """No connection came about, so nothing was sent."""


class Passing(Exception):
    """The request failed in a way that may pass; after is what the server asks to wait."""

    def __init__(self, words: str, after: float | None = None) -> None:
        super().__init__(words)
        self.after = after


class Refused(Exception):
    """This prompt will not be answered, however often it is sent."""


class Hopeless(Exception):
    """No prompt of the run will be answered; fix says what mends it."""

    def __init__(self, words: str, fix: str) -> None:
        super().__init__(words)
        self.fix = fix


class Client:
    """Sends prompts over connections that are kept; use it as an asynchronous context.

    heard: called whenever anything arrives; tell: as Stream has it.
    """

    def __init__(
        self,
        target: Target,
        limits: Limits,
        connections: int,
        stream: bool,
        heard: Callable[[], None],
        tell: Callable[[str, str], None] = lambda *_: None,
    ) -> None:
        self._target, self._limits, self._stream, self._heard = target, limits, stream, heard
        self._tell = tell
        self._connections = connections

    async def __aenter__(self) -> Client:
        """Open the session; a file of certificates that cannot be read is an OSError."""
        sent = aiohttp.TraceConfig()
        sent.on_connection_create_end.append(_note)
        sent.on_connection_reuseconn.append(_note)
        tls: ssl.SSLContext | bool = True
        if self._target.ca:
            tls = ssl.create_default_context(cafile=self._target.ca)
        headers = {"Authorization": f"Bearer {self._target.key}"} if self._target.key else {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections, keepalive_timeout=IDLE_SECONDS, ssl=tls
            ),
            headers=headers,
            timeout=aiohttp.ClientTimeout(
                total=self._limits.total,
                sock_connect=CONNECT_SECONDS,
                sock_read=self._limits.silence if self._stream else None,
            ),
            trace_configs=[sent],
            # A proxy in the environment must not come between a cluster and its users.
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection; what is in flight is given up, and the server sees it."""
        await self._session.close()

    async def ask(self, prompt: Prompt, sending: Callable[[], None]) -> Answer:
        """Return the answer to one prompt, or raise one of the four above.

        sending: called once there is a connection, right before the request goes.
        """
        began = time.monotonic()
        try:
            return await self._ask(prompt, sending, began)
        except (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError) as error:
            raise Hopeless(
                f"{self._target.url}: {error}", "name the server's CA with --ca"
            ) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unsent(str(error)) from error
        except aiohttp.SocketTimeoutError as error:
            raise Passing(f"nothing came for {self._limits.silence:g} s") from error
        except TimeoutError as error:
            raise Refused(f"not answered within {self._limits.total:g} s") from error
        except aiohttp.ClientError as error:
            raise Passing(f"the connection broke: {error or type(error).__name__}") from error
        except NoAnswer as error:
            words = self._hidden(str(error))
            # Without a code of its own it came with status 200, and is told as no other.
            raise (_judged(error.code, words, None) if error.code else Passing(words)) from error

    async def _ask(self, prompt: Prompt, sending: Callable[[], None], began: float) -> Answer:
        body: dict[str, Any] = {
            **prompt.parameters,
            "model": self._target.model,
            "messages": prompt.messages,
            "stream": self._stream,
        }
        if self._stream:
            body["stream_options"] = {"include_usage": True}
        async with self._session.post(
            f"{self._target.url}/chat/completions",
            json=body,
            # A redirect would carry the key to another server.
            allow_redirects=False,
            trace_request_ctx=sending,
        ) as response:
            if response.status != 200:
                after = retry_after(response.headers.get("Retry-After"))
                words = self._hidden(words_of(await response.read()))
                raise _judged(response.status, words, after)
            self._heard()
            if not self._stream:
                return whole(await response.read(), began, time.monotonic())
            stream = Stream(began, self._tell)
            async for piece in response.content.iter_any():
                self._heard()
                stream.feed(piece, time.monotonic())
            return stream.answer(time.monotonic())

    def _hidden(self, words: str) -> str:
        """Return a server's words without the key: some say it again, and words are kept."""
        return words.replace(self._target.key, HIDDEN) if self._target.key else words


def _judged(status: int, words: str, after: float | None) -> Exception:
    """Return what an answer that is none means for the prompt, or for all of them."""
    told = f"HTTP {status}: {words}"
    if status in PASSING:
        return Passing(told, after)
    if status in OF_ALL:
        return Hopeless(told, OF_ALL[status])
    if 300 <= status < 400:
        return Hopeless(told, "the server's own --url: redirects are not followed")
    return Refused(told)


async def _note(_: aiohttp.ClientSession, context: SimpleNamespace, __: Any) -> None:
    context.trace_request_ctx()
