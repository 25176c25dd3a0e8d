"""What an endpoint says that it is: its entry in `/models`, and the model and fingerprint of an answer of one token."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from plumbline.errors import GenerationError
from plumbline.lvlm.chat_client import ChatClient
from plumbline.lvlm.chat_endpoint import ChatRequest
from plumbline.lvlm.chat_transport import open_client
from plumbline.lvlm.endpoint_key import EndpointKey, read_key
from plumbline.lvlm.endpoint_settings import EndpointSettings

# vLLM writes the time of the request into `created`.
_STABLE = ("id", "root", "parent", "owned_by")
_PATIENCE_S = 15.0


@dataclass(frozen=True)
class EndpointReport:
    """What one endpoint said of itself.

    Attributes
    ----------
    entry : dict of str to str
        Of `/models`, without what changes by itself; empty where the endpoint lists no models.
    source : str
        Model and fingerprint of an answer.
    """

    entry: dict[str, str]
    source: str


def ask_what_it_is(settings: EndpointSettings) -> EndpointReport:
    """Ask an endpoint what it is; each call is a question of one new token.

    Raises
    ------
    GenerationError
        If none of its addresses answers.
    ConfigError
        If the environment variable of the key is not set.
    """
    key = read_key(settings.key_variable)
    hurried = settings.model_copy(
        update={"attempts": 1, "timeout_s": min(settings.timeout_s, _PATIENCE_S), "concurrency": 1}
    )
    request = ChatRequest(
        messages=lambda: [{"role": "user", "content": "Hello"}],
        parameters={settings.length_field: 1},
        where=f"what {settings.model} is",
        most_new_tokens=1,
    )
    replies = [reply for _, reply in ChatClient(hurried).ask_all([request])]
    if not replies:
        raise GenerationError("an endpoint did not say what it is", where=settings.model)
    return EndpointReport(asyncio.run(_listed(hurried, key)), replies[0].source)


async def _listed(settings: EndpointSettings, key: EndpointKey) -> dict[str, str]:
    """Return the model's entry at the first address that has one; many endpoints list nothing."""
    import openai

    for url in settings.urls:
        async with open_client(url, key, timeout_s=settings.timeout_s) as client:
            try:
                listed = await client.models.list()
            except (openai.OpenAIError, ValueError):
                continue
        for model in listed.data:
            if model.id == settings.model:
                said: dict[str, Any] = model.model_dump()
                return {name: str(said[name])[:200] for name in _STABLE if said.get(name) is not None}
    return {}
