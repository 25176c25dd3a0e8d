"""What an audit file says of a model behind an OpenAI-compatible endpoint, and its key."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
from typing import Any, Literal, NoReturn
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from plumbline.config.parts import Part
from plumbline.errors import ConfigError
from plumbline.imports import of_extra

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_URL = re.compile(r"https?://[A-Za-z0-9._:\[\]-]+(?:/[A-Za-z0-9._~/-]*)?")
_HIDDEN = "(not shown: it may hold a key)"


class EndpointSettings(Part):
    """One model behind one or several `/v1/chat/completions`; there is no place for a key, only for a variable's name.

    Raises
    ------
    ValidationError
        With `url`, `key_variable` and what is expected. A value that may hold a key is not repeated.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    urls: tuple[str, ...] = Field(min_length=1)
    """base URLs such as https://api.openai.com/v1, all of the same model"""
    model: str = Field(min_length=1, max_length=200)
    """name under which the endpoints serve it"""
    key_variable: str | None = None
    """environment variable that holds the key; no key is sent when absent"""
    concurrency: int = Field(default=8, ge=1, le=512)
    """requests under way at each URL at once"""
    timeout_s: float = Field(default=120, gt=0, allow_inf_nan=False)
    """seconds for one whole request, its waiting at the server included"""
    attempts: int = Field(default=6, ge=1, le=20)
    """times that a request is tried at one URL before it counts as down"""
    price_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """per million prompt tokens, for the plan"""
    price_output: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """per million new tokens, for the plan"""
    send_seed: bool = True
    """some endpoints refuse a seed"""
    send_top_k: bool = False
    """not in OpenAI's API; vLLM takes it"""
    defaults: bool = False
    """the endpoint's own decoding: only seed and most new tokens are sent, as the study did with GPT-4o"""
    image_tokens: int | None = Field(default=None, ge=0)
    """what an image costs, in tokens, for the plan; known of the studies' models"""
    follow: bool = True
    """when it says that it is another model or has another fingerprint, everything is asked anew"""
    length_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """how the most new tokens are called; newer OpenAI models take the second only"""
    allow_http: bool = False
    """http to other machines: prompts, images and the key travel readable"""

    @field_validator("key_variable", mode="before")
    @classmethod
    def _names_a_variable(cls, value: Any) -> Any:
        if isinstance(value, str) and not _VARIABLE.fullmatch(value):
            _refuse("the NAME of an environment variable, such as OPENAI_API_KEY; never the key itself")
        return value

    @field_validator("urls", mode="before")
    @classmethod
    def _plain_urls(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple) or not all(isinstance(url, str) for url in value):
            return value
        plain = tuple(url.rstrip("/") for url in value)
        for url in plain:
            _refuse_url(url)
        if len(set(plain)) < len(plain):
            _refuse("every URL once")
        return plain

    @model_validator(mode="after")
    def _safe_urls(self) -> EndpointSettings:
        readable = [url for url in self.urls if url.startswith("http://") and not is_loopback(url)]
        if readable and not self.allow_http:
            raise ValueError(
                f"https, since {readable[0]} is another machine; `allow_http: true` sends everything readable"
            )
        return self

    @property
    def slots(self) -> int:
        """Return how many requests are under way at once, over all URLs."""
        return self.concurrency * len(self.urls)


def is_loopback(url: str) -> bool:
    """Return whether a URL's host is this machine: `localhost`, 127.0.0.0/8 or ::1."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refuse_url(url: str) -> None:
    if not _URL.fullmatch(url):
        _refuse("http:// or https://, a host and a path; no user, password, query or fragment")
    if url.endswith("/completions"):
        _refuse("a base URL, which ends before /chat/completions; often in /v1")
    try:
        parts = urlsplit(url)
        if not parts.hostname or parts.port == 0:
            raise ValueError
    except ValueError:
        _refuse("a URL with a host, and a port of 1 to 65535 if any")


def _refuse(expected: str) -> None:
    """Raise what pydantic reports, without the value: people paste keys where names belong."""
    mistake = PydanticCustomError("value_error", "{expected}", {"expected": expected})
    raise ValidationError.from_exception_data(
        "EndpointSettings", [InitErrorDetails(type=mistake, loc=(), input=_HIDDEN)], hide_input=True
    )


# --- The key of an endpoint: read from the environment when it is needed, and kept out of everything that
# is written.

HIDDEN = "[key]"
SECRET_LENGTH = 16
"""Shorter values, such as the `EMPTY` that local servers are given, are no secrets: texts may hold them by chance."""

_KEY = re.compile(r"[\x21-\x7e]+")
_LIBRARIES = ("httpx2", "httpcore2", "stamina")
# Their modules are loaded with the first request, and their debug records show headers.
_LATE_LOGGERS = tuple(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))


class EndpointKey:
    """A key, or none.

    It is in no repr and cannot be pickled.

    Parameters
    ----------
    value : str or None
    """

    def __init__(self, value: str | None) -> None:
        self.__value = value

    def __repr__(self) -> str:
        return f"EndpointKey({HIDDEN if self.__value else None})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not pickled")

    @property
    def authorization(self) -> str | None:
        """Return the value of the header `Authorization`."""
        return f"Bearer {self.__value}" if self.__value else None

    def scrub(self, message: str) -> str:
        """Return a message for people without the key."""
        return message.replace(self.__value, HIDDEN) if self.__value else message

    def scrub_data(self, text: str) -> str:
        """Return what a model wrote without the key, which a hostile endpoint could send back; else as it is."""
        return self.scrub(text) if self.__value and len(self.__value) >= SECRET_LENGTH else text


def read_key(variable: str | None) -> EndpointKey:
    """Return the key that an environment variable holds; from then on the libraries' log records are scrubbed of it.

    Raises
    ------
    ConfigError
        If the variable is not set, or holds what cannot stand in a header.
    """
    if variable is None:
        return EndpointKey(None)
    value = os.environ.get(variable, "").strip()
    if not _KEY.fullmatch(value):
        raise ConfigError(
            "there is no key for the endpoint",
            where=f"environment variable {variable}",
            found="a value with spaces or other characters that no key has" if value else "not set, or empty",
            expected="the endpoint's key",
            hint=f"export {variable}=... in the shell that runs this; without a key leave `key_variable` out",
        )
    key = EndpointKey(value)
    _scrub_logs(key)
    return key


class _Scrubbing(logging.Filter):
    """Takes keys out of log records: an endpoint may send one back, in a header that a debug record shows."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[EndpointKey] = []

    def add(self, key: EndpointKey) -> None:
        if all(known.authorization != key.authorization for known in self._keys):
            self._keys.append(key)

    def filter(self, record: logging.LogRecord) -> bool:
        message = plain = record.getMessage()
        for key in self._keys:
            plain = key.scrub(plain)
        if plain != message:
            record.msg, record.args = plain, ()
        return True


_scrubbing = _Scrubbing()


def _scrub_logs(key: EndpointKey) -> None:
    # A logger's filter does not see the records of those below it, so each of them needs it.
    of_extra("httpx2", "lvlm")  # makes the loggers
    of_extra("stamina", "lvlm")

    _scrubbing.add(key)
    names = [name for name in logging.Logger.manager.loggerDict if name.split(".")[0] in _LIBRARIES]
    for name in (*names, *_LATE_LOGGERS):
        logging.getLogger(name).addFilter(_scrubbing)
