"""Untrusted text made visible: nothing that hides, reorders or breaks what a reader sees gets through."""

from __future__ import annotations

import re
import unicodedata

# Cc control, Cf format (bidi, zero-width, soft hyphen), Cs surrogate, Co private, Cn unassigned, Zl/Zp separators
HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
LONGEST = 400


def visible(text: object, *, longest: int = LONGEST) -> str:
    r"""Show control, bidirectional and other unseen characters as escapes, and shorten what is endless.

    Every string that reaches the page or a figure passes through here; HTML escaping comes on top.

    Parameters
    ----------
    text : object
        Converted with `str`.
    longest : int
        Characters of the original that are kept.

    Examples
    --------
    >>> visible("a\u202egnp.exe\n")
    'a\\u202egnp.exe\\n'
    """
    raw = str(text)
    if len(raw) <= longest and raw.isprintable():  # of no hidden category, as nearly every text is
        return raw
    shown = "".join(_escape(c) if unicodedata.category(c) in HIDDEN_CATEGORIES else c for c in raw[:longest])
    if len(raw) > longest:
        shown += f"… ({len(raw) - longest:,} more characters)"
    return shown


def _escape(character: str) -> str:
    code = ord(character)
    named = {"\n": r"\n", "\t": r"\t", "\r": r"\r"}
    return named.get(character) or (f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}")


# Whatever stands before: what begins an address for one renderer is within a word for another.
_ADDRESS = re.compile(r":(?=//)|(?<=www)\.|(?<=mailto):|(?<=xmpp):|(?<=\S)@(?=[^\s@]*\.)", re.IGNORECASE)


def unlinked(text: str) -> str:
    """Return a text in which nothing is an address that Markdown makes a link of, escaped or not.

    Examples
    --------
    >>> unlinked("see https://evil.example and www.evil.example")
    'see https[:]//evil.example and www[.]evil.example'
    >>> unlinked("hf-hub:org/model@main, a@evil.example")
    'hf-hub:org/model@main, a[@]evil.example'
    >>> unlinked("_www.evil.example a+@evil.example")
    '_www[.]evil.example a+[@]evil.example'
    """
    return _ADDRESS.sub(r"[\g<0>]", text)


def escaped(text: object, more: str = "", *, longest: int = LONGEST) -> str:
    """Return a text as it is to be read in Markdown, with `more` characters escaped as well."""
    return "".join(f"\\{c}" if c in "\\`*[]<>|&" + more else c for c in unlinked(visible(text, longest=longest)))


def as_code(text: object) -> str:
    """Return a text as code in Markdown; a backtick in it, which would end the code, as a quote."""
    return f"`{visible(text).replace('`', chr(39))}`"


def safe_link(address: str | None) -> str | None:
    """Return an address that a reader may follow: relative, or `file`, `http` and `https`; None for any other."""
    if not address:
        return None
    cleaned = address.strip()
    if any(unicodedata.category(c) in HIDDEN_CATEGORIES for c in cleaned):
        return None
    head = cleaned.split("/", 1)[0].split("?", 1)[0].split("#", 1)[0]
    scheme, colon, _ = head.partition(":")
    return cleaned if not colon or scheme.lower() in ("file", "http", "https") else None
