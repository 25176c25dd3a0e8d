"""The key of an endpoint: read from the environment when it is needed, and kept out of everything that is written."""

from __future__ import annotations

import logging
import os
import re
from typing import NoReturn

from plumbline.errors import ConfigError

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
    import httpx2  # noqa: F401  (makes the loggers)

    _scrubbing.add(key)
    names = [name for name in logging.Logger.manager.loggerDict if name.split(".")[0] in _LIBRARIES]
    for name in (*names, *_LATE_LOGGERS):
        logging.getLogger(name).addFilter(_scrubbing)
