"""Chat completions: what is asked, and how a reply is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from plumbline.http.client import EndpointClient, MalformedReply, Response, read_json
from plumbline.http.retries import is_filtered, on_one_line
from plumbline.http.settings import EndpointKey

UNREPORTED = "unreported"
_NAME_LENGTH = 200
_STOPPED_BY_LENGTH = ("length", "max_tokens")
_STOPPED = ("stop", "eos", "eos_token", "stop_sequence", "end_turn")


@dataclass(frozen=True)
class ChatRequest:
    """One thing to ask.

    Attributes
    ----------
    messages : callable
        Gives the messages when they are sent, so that only the images under way are in memory. Called in a thread.
    parameters : mapping
        Sent beside model and messages, such as `max_tokens`.
    where : str
        What this is about, for errors.
    most_new_tokens : int or None
        As in `read_reply`.
    """

    messages: Callable[[], Sequence[Mapping[str, Any]]]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""
    most_new_tokens: int | None = None


@dataclass(frozen=True)
class ChatReply:
    """One answer.

    Attributes
    ----------
    text : str
        As it came; of a refusal the content, or where there is none the words of the refusal.
    finish_reason : str
        One of `plumbline.catalog.schema.FINISH_REASONS`.
    prompt_tokens, new_tokens : int
        As the endpoint counts them; 0 where it does not say. A prompt has at least one token, so 0 there always means
        that it did not.
    source : str
        What the endpoint reports: model, and fingerprint after a space; `unreported` where it names no model.
    """

    text: str
    finish_reason: str
    prompt_tokens: int = 0
    new_tokens: int = 0
    source: str = UNREPORTED


class ChatClient(EndpointClient[ChatRequest, ChatReply]):
    """Asks one model behind one or several endpoints; refusals and content filters are answers."""

    path = "/chat/completions"
    wanted = "chat completion"
    malformed_hint = "is this an address of chat completions? It often ends in /v1"

    def body(self, request: ChatRequest) -> Mapping[str, Any]:
        """See `EndpointClient`."""
        return {"model": self.settings.model, "messages": request.messages(), **request.parameters}

    def read(self, request: ChatRequest, response: Response, key: EndpointKey) -> ChatReply | None:
        """See `EndpointClient`."""
        if is_filtered(response.status, response.body):
            return ChatReply(text="", finish_reason="content_filter")
        if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
            return None
        return read_reply(response.body, most_new_tokens=request.most_new_tokens, key=key)


def read_reply(body: bytes, *, most_new_tokens: int | None, key: EndpointKey) -> ChatReply:
    """Read the body of a chat completion.

    Parameters
    ----------
    most_new_tokens : int or None
        What was asked for: decides between `stop` and `length` where the endpoint gives a reason of its own.

    Raises
    ------
    MalformedReply
        If it is not JSON, has no choice, or its text is not text.
    """
    content = read_json(body)
    choice = _first_choice(content, key)
    message = choice.get("message")
    if not isinstance(message, dict):
        raise MalformedReply("its choice has no message")
    text, refusal = plain_text(message.get("content")), message.get("refusal")
    usage = content.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    new_tokens = _count(usage.get("completion_tokens"))
    refusal = plain_text(refusal) if isinstance(refusal, str) else ""
    refused = bool(refusal.strip())
    return ChatReply(
        text=key.scrub_data(text or refusal),
        finish_reason=_finish(choice.get("finish_reason"), refused, new_tokens, most_new_tokens),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        new_tokens=new_tokens,
        source=_source(content, key),
    )


def _first_choice(content: dict[str, Any], key: EndpointKey) -> dict[str, Any]:
    choices = content.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        return choices[0]
    # Some gateways answer 200 and say there what went wrong.
    message = on_one_line(key.scrub(str(content["error"]))) if "error" in content else ""
    raise MalformedReply("it has no choices" + (f", and says {message}" if message else ""))


def plain_text(content: Any) -> str:
    """Return the text of a message; some endpoints send it in parts."""
    if content is None:
        return ""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        if all(isinstance(part, str) for part in parts):
            content = "".join(parts)  # type: ignore[arg-type]
    if not isinstance(content, str):
        raise MalformedReply("its content is not text")
    # JSON can spell half of a surrogate pair, which no file in UTF-8 can hold.
    return content.encode("utf-8", "replace").decode("utf-8")


def _finish(reason: Any, refused: bool, new_tokens: int, most_new_tokens: int | None) -> str:
    if reason == "content_filter":
        return "content_filter"
    if refused:
        return "refusal"
    if reason in _STOPPED_BY_LENGTH:
        return "length"
    if reason in _STOPPED or most_new_tokens is None:
        return "stop"
    return "length" if new_tokens >= most_new_tokens else "stop"


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else 0


def _source(content: dict[str, Any], key: EndpointKey) -> str:
    names = (content.get("model"), content.get("system_fingerprint"))
    # Before it is cut: half a key is too much as well.
    parts = [
        key.scrub_data(plain_text(name))[:_NAME_LENGTH] for name in names if isinstance(name, str) and name.strip()
    ]
    return " ".join(parts) if isinstance(names[0], str) and names[0].strip() else " ".join([UNREPORTED, *parts])
