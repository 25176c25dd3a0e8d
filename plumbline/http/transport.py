"""The HTTP client below the openai library: what leaves this machine, and how much may come back."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx2

from plumbline.http.keys import EndpointKey
from plumbline.http.settings import is_loopback

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MOST_REPLY_BYTES = 8 << 20
"""Of one reply, a few thousand times what 512 tokens take: a hostile endpoint cannot fill the memory."""

_LONGEST_CONNECT_S = 15.0
_SENT_HEADERS = (
    "host",
    "accept",
    "connection",
    "content-type",
    "content-length",
    "transfer-encoding",
    "user-agent",
    # By this one the library knows later that it shall not parse the reply.
    "x-stainless-raw-response",
)


class UnusableReply(httpx2.TransportError):
    """A reply that is not read to its end."""


def open_client(url: str, key: EndpointKey, *, timeout_s: float) -> AsyncOpenAI:
    """Return a client of one endpoint; close it in the event loop that used it.

    The library's own retries are off. Of its environment variables (`OPENAI_API_KEY`, `OPENAI_ORG_ID`,
    `OPENAI_CUSTOM_HEADERS` and others) none has an effect: only the key of the settings and what describes the body
    is sent. Redirects are not followed. Proxies of the environment are used, but never for this machine itself.
    """
    import openai

    by_environment = not is_loopback(url)
    http = openai.DefaultAsyncHttpxClient(
        verify=_trusted(by_environment),
        timeout=httpx2.Timeout(timeout_s, connect=min(timeout_s, _LONGEST_CONNECT_S)),
        follow_redirects=False,
        trust_env=by_environment,
        event_hooks={"request": [_only_needed_headers(key)], "response": [_bounded_body]},
    )
    # The key itself is put in by the hook, so that the library holds none.
    return openai.AsyncOpenAI(base_url=url, api_key="in-the-hook", max_retries=0, http_client=http)


@cache
def _trusted(by_environment: bool) -> ssl.SSLContext:
    """Return whose certificates are believed, read once: that takes longer than many a request."""
    return httpx2.create_ssl_context(trust_env=by_environment)


def _only_needed_headers(key: EndpointKey) -> Callable[[Any], Awaitable[None]]:
    async def hook(request: httpx2.Request) -> None:
        for name in [name for name in request.headers if name.lower() not in _SENT_HEADERS]:
            del request.headers[name]
        # What comes back packed could be a thousand times as large unpacked.
        request.headers["Accept-Encoding"] = "identity"
        if key.authorization:
            request.headers["Authorization"] = key.authorization

    return hook


async def _bounded_body(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnusableReply("the reply is packed, though that was not asked for", request=response.request)
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream)


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MOST_REPLY_BYTES:
                raise UnusableReply(f"the reply is larger than {MOST_REPLY_BYTES >> 20} MiB")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()
