"""Generation through OpenAI-compatible endpoints: image formats, requests, and the endpoints' self-reports."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image

from plumbline.digests import digest_json
from plumbline.errors import GenerationError, ImageRejected
from plumbline.generators.backend import Answer, Asked, Decoding
from plumbline.generators.thinking import text_apart
from plumbline.http.chat import ChatClient, ChatReply, ChatRequest, plain_text
from plumbline.http.client import MalformedReply, exchange, open_http, read_json
from plumbline.http.settings import EndpointKey, EndpointSettings, read_key
from plumbline.images.decoding import decode, read_recorded_image, suffix_of

ENCODING_VERSION = 1
"""Part of the identity of every endpoint: raise it with any change of this module that sends other pixels."""

MOST_ORIGINAL_BYTES = 4 << 20
LONGEST_SIDE = 2048
"""Pixels. What larger pictures are made smaller to by the endpoints themselves."""

_PLAIN_MODES = ("RGB", "L")
_JPEG_QUALITY = 95
_MEDIA = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp"}


def image_url(path: Path, image_id: str) -> str:
    """Return an image as a data URL.

    The file's own bytes where they are at most `MOST_ORIGINAL_BYTES` and an ordinary decoder sees in them what
    `plumbline.images.decoding.decode` sees: servers differ in whether they turn a picture as its EXIF block says, and
    in what they put behind transparent pixels. Else the decoded picture as PNG; where that is larger than the limit, as
    JPEG of quality 95 whose longest side is at most `LONGEST_SIDE`.

    Parameters
    ----------
    path : Path
        As `plumbline.images.decoding.read_image_file` takes it.
    image_id : str
        sha256 that the file must have.

    Raises
    ------
    GenerationError
        If the file cannot be read, is no accepted image, or is another than when the dataset was read.
    """
    try:
        data = read_recorded_image(path, image_id)
        picture = decode(data, suffix=suffix_of(str(path)))
    except ImageRejected as error:
        before, hint = f"an image cannot be sent, {error.code}: ", "materialise `records` again"
        raise error.restated(GenerationError, before, where=path, hint=hint) from error
    kind = _plain_kind(data, picture) if len(data) <= MOST_ORIGINAL_BYTES else None
    if kind is not None:
        return _data_url(kind, data)
    return _data_url(*_encoded(picture))


def _plain_kind(data: bytes, picture: Image.Image) -> str | None:
    """Return the format of bytes in which any decoder sees this picture, or None."""
    try:
        with Image.open(io.BytesIO(data), formats=list(_MEDIA)) as plain:
            same = plain.mode in _PLAIN_MODES and plain.convert("RGB").tobytes() == picture.tobytes()
            return plain.format if same and plain.size == picture.size and plain.format in _MEDIA else None
    except Exception:
        return None  # it is sent as decoded


def _encoded(picture: Image.Image) -> tuple[str, bytes]:
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    if buffer.tell() <= MOST_ORIGINAL_BYTES:
        return "PNG", buffer.getvalue()
    smaller, buffer = picture.copy(), io.BytesIO()
    smaller.thumbnail((LONGEST_SIDE, LONGEST_SIDE), Image.Resampling.LANCZOS)
    smaller.save(buffer, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    return "JPEG", buffer.getvalue()


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{_MEDIA[kind]};base64,{base64.b64encode(data).decode()}"


# Questions and answers.

ENDPOINT_VERSION = 1
"""Part of the identity: raise it with any change of how a question is put to an endpoint."""

_ROUNDS = 8
_NO_TOP_K = -1


class EndpointBackend:
    """A model behind one or several endpoints; see `plumbline.generators.backend.Backend`.

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
        sent with `send_top_k`, and with `defaults` nothing but the seed and `max_new_tokens` is.
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
            sent["top_k"] = sent["top_k"] or _NO_TOP_K
        return sent


def _sent(settings: EndpointSettings) -> tuple[str, ...]:
    defaults = settings.defaults
    optional = {
        "temperature": not defaults, "top_p": not defaults, "top_k": settings.send_top_k and not defaults,
        "seed": settings.send_seed,
    }  # fmt: skip
    return ("max_new_tokens", *(name for name, yes in optional.items() if yes))


def _seed(asked: Asked) -> int:
    """Return the seed that is sent: the question's; of a subject in words one of the row's own.

    Images of one description are the same request: with equal seeds one answer would be counted for many sets.
    """
    return asked.question.seed if asked.subject.path is not None else int(asked.key[:7], 16)


def _answer(reply: ChatReply) -> Answer:
    thinking, text = text_apart(reply.text)
    return Answer(
        text,
        reply.finish_reason,
        reply.prompt_tokens,
        reply.new_tokens,
        reply.source,
        thinking,
        None if thinking else 0,
    )


# What an endpoint says that it is: its entry in `/models`, and model and fingerprint of an answer of one token.

# vLLM writes the time of the request into `created`.
_STABLE = ("id", "root", "parent", "owned_by")
_PATIENCE_S = 15.0
_VALUE_LENGTH = 200


@dataclass(frozen=True)
class EndpointReport:
    """What one endpoint reports about itself.

    Attributes
    ----------
    entry : dict of str to str
        Of `/models`, without what changes by itself and without the key; empty where the endpoint lists no models.
    source : str
        Model and fingerprint of an answer.
    """

    entry: dict[str, str]
    source: str


def ask_what_it_is(settings: EndpointSettings) -> EndpointReport:
    """Query an endpoint for its model and version; each call generates one token.

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
    import httpx2

    headers = ChatClient(settings).authorization(key)
    for url in settings.urls:
        async with open_http(url, timeout_s=settings.timeout_s) as http:
            try:
                # The limits of `http` hold for each piece of a reply, not for the whole.
                async with asyncio.timeout(settings.timeout_s):
                    listed = read_json((await exchange(http, "/models", headers=headers)).body).get("data")
            except (httpx2.HTTPError, OSError, MalformedReply, TimeoutError):
                continue
        for model in listed if isinstance(listed, list) else ():
            if isinstance(model, dict) and model.get("id") == settings.model:
                entry = {name: plain_text(str(model[name])) for name in _STABLE if model.get(name) is not None}
                # Scrubbed before it is cut: half a key is too much as well.
                return {name: key.scrub_data(value)[:_VALUE_LENGTH] for name, value in entry.items()}
    return {}
