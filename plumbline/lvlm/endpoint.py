"""Generation through OpenAI-compatible endpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from plumbline.digests import digest_json
from plumbline.errors import GenerationError
from plumbline.lvlm.backend import Answer, Asked, Decoding
from plumbline.lvlm.chat_client import ChatClient
from plumbline.lvlm.chat_endpoint import ChatRequest
from plumbline.lvlm.chat_reply import ChatReply
from plumbline.lvlm.endpoint_settings import EndpointSettings
from plumbline.lvlm.image_url import ENCODING_VERSION, image_url

ENDPOINT_VERSION = 1
"""Part of the identity: raise it with any change of how a question is put to an endpoint."""

_ROUNDS = 8
_NO_TOP_K = -1


class EndpointBackend:
    """A model behind one or several endpoints; see `plumbline.lvlm.backend.Backend`.

    `identity` is the digest of the model's name, how images are encoded, whether it gets any, and which values of the
    decoding are sent (`sent`). It does not follow the addresses: one model may be served from several and moved
    between them, and no finished row should be asked again for that. What each address said it was is in the column
    `source`; where that is no longer what it was, `changed` asks anew. The values of the decoding themselves are in
    every row's key, as for local models, those that are not sent too: changing one of these asks anew. Whether the
    same seed gives the same text again is the endpoint's matter; so is what it makes of a temperature (`transformers
    serve` draws only where the checkpoint's own configuration says so).

    Parameters
    ----------
    settings : EndpointSettings
    sees : bool
        False for a language model that is asked with words in place of images.
    changed : str, optional
        What tells it from the model that first answered under this name; part of `identity`.
    client : ChatClient, optional
        For tests.

    Attributes
    ----------
    sent : tuple of str
        Values of `Decoding`, and `seed`, that the endpoint gets; its own defaults hold for the others. `top_k` is only
        sent with `send_top_k`, and with `defaults` nothing but `max_new_tokens` is.
    """

    device = "endpoint"

    def __init__(
        self,
        settings: EndpointSettings,
        *,
        sees: bool = True,
        changed: str | None = None,
        client: ChatClient | None = None,
    ) -> None:
        self.settings, self.sees = settings, sees
        self.sent = _sent(settings)
        self.at_once = _ROUNDS * settings.slots
        self.identity = digest_json(
            {
                "kind": "endpoint",
                "version": ENDPOINT_VERSION,
                "model": settings.model,
                "images": ENCODING_VERSION if sees else None,
                "sent": self.sent,
            }
            | ({} if changed is None else {"changed": changed})
        )
        self._client = client or ChatClient(settings)
        # The rows of one image come one after the other, so only those under way are looked for again.
        self._image_url = lru_cache(maxsize=settings.slots + 1)(image_url)

    def answers(self, asked: Sequence[Asked], decoding: Decoding) -> Iterator[tuple[int, Answer]]:
        """Yield (position in `asked`, answer) as answers come; their order is that of the endpoints.

        Refusals and content filters are answers. Token counts are 0 where an endpoint does not report them.

        Raises
        ------
        GenerationError
            If a row cannot be answered or no endpoint is left, after all that was answered has been yielded.
        ConfigError
            If the environment variable of the key is not set.
        """
        requests = [self._request(one, decoding) for one in asked]
        for position, reply in self._client.ask_all(requests):
            yield position, _answer(reply)

    def _request(self, asked: Asked, decoding: Decoding) -> ChatRequest:
        subject, question = asked.subject, asked.question
        if subject.path is not None and not self.sees:
            raise GenerationError(
                "a language model was given an image",
                where=f"{self.settings.model}, image {subject.image_id}",
                expected="words in place of the image",
            )
        return ChatRequest(
            messages=lambda: self._messages(asked),
            parameters=self._parameters(decoding, _seed(asked)),
            where=f"image {subject.image_id}, prompt {question.prompt}, seed {question.seed}",
            most_new_tokens=decoding.max_new_tokens,
        )

    def _messages(self, asked: Asked) -> list[dict[str, Any]]:
        subject, text = asked.subject, asked.question.text
        if subject.path is None:
            return [{"role": "user", "content": text}]
        url = self._image_url(subject.path, subject.image_id)
        return [
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}],
            }
        ]

    def _parameters(self, decoding: Decoding, seed: int) -> Mapping[str, Any]:
        values: dict[str, Any] = {**vars(decoding), "seed": seed}
        sent = {name: values[name] for name in self.sent}
        sent[self.settings.length_field] = sent.pop("max_new_tokens")
        if "top_k" in sent:
            sent["extra_body"] = {"top_k": sent.pop("top_k") or _NO_TOP_K}
        return sent


def _sent(settings: EndpointSettings) -> tuple[str, ...]:
    if settings.defaults:
        return ("max_new_tokens",)
    optional = {"top_k": settings.send_top_k, "seed": settings.send_seed}
    return ("max_new_tokens", "temperature", "top_p", *(name for name, yes in optional.items() if yes))


def _seed(asked: Asked) -> int:
    """Return the seed that is sent: the question's; of a subject in words one of the row's own.

    Images of one description are the same request: with equal seeds one answer would be counted for many sets.
    """
    return asked.question.seed if asked.subject.path is not None else int(asked.key[:7], 16)


def _answer(reply: ChatReply) -> Answer:
    return Answer(reply.text, reply.finish_reason, reply.prompt_tokens, reply.new_tokens, reply.source)
