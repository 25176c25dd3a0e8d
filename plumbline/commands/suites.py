"""What `plumbline suite` prints: rendered prompts, who reads them, their grammar, and their tokens by encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from plumbline.catalog.own_suites import is_suite_file, read_own_suite, remarks, starter
from plumbline.catalog.suites import TRIDENT_SUITES, ZERO_SHOT, Suite, load_suite, suite_of
from plumbline.catalog.word_lists import load_sensitive_queries, neutral_captions
from plumbline.checkpoints.folders import CheckpointFiles
from plumbline.commands.places import default_home, from_here, here
from plumbline.commands.terminal import console, safe, say
from plumbline.config.audit import Audit
from plumbline.config.file import read_audit
from plumbline.config.values import AUDITED_SUITES
from plumbline.encoders.families import find_family
from plumbline.encoders.folders import checkpoint_files
from plumbline.encoders.text_lengths import TextLengths, text_lengths
from plumbline.errors import ConfigError, PlumblineError, suggestion
from plumbline.metrics.registry import FAMILIES

_SHOWN, _MOST_LONG = 3, 5
_SHIPPED = tuple(name for name in AUDITED_SUITES if name not in (ZERO_SHOT, *TRIDENT_SUITES))
"""Suites whose words do not depend on a dataset."""


def write_starter(path: Path, kind: str) -> None:
    """Write a commented file of a kind.

    Raises
    ------
    ConfigError
        If there is no such kind, something is there already, or its name cannot be that of a suite.
    """
    text = starter(kind, path.stem)
    if path.exists():
        raise ConfigError("there is a file already", where=path, expected="a new name")
    path.write_text(text, "utf-8")
    try:
        read_own_suite(path)
    except ConfigError:
        path.unlink()
        raise


def print_suite(path: Path, *, config: Path | None, encoders: Sequence[str] | None, every: bool) -> bool:
    """Print a suite, and return whether an audit would refuse it.

    Parameters
    ----------
    path : Path
        Its file, or the name of a suite that is here.

    Raises
    ------
    ConfigError
        With every mistake of the file, or the names of the suites where it is neither.
    """
    suite = load_suite(str(path)) if str(path) in _SHIPPED else suite_of(_read(path))
    readers = [f"{name} ({', '.join(family.metrics)})" for name, family in FAMILIES.items() if _reads(family, suite)]
    say(f"{suite.id}: {suite.family}, {len(suite.texts)} prompts", style="bold")
    say(f"  read by {'; '.join(readers)}")
    for name, categories in suite.events.items():
        skewed = ", whose skew between groups is a finding" if name in suite.skewed_events else ""
        say(f"  event {name}: {', '.join(categories)}{skewed}")
    _print_prompts(suite, every=every)
    for remark in remarks(suite):
        say(f"  look at {remark}", style="yellow")
    for text in _trained_on(suite):
        say(f"  look at `{text}`: mitigations are trained on that text, and would be judged by it", style="yellow")
    return _print_lengths(suite, config=config, encoders=encoders)


def _read(path: Path) -> dict[str, Any]:
    if not is_suite_file(str(path)):
        raise ConfigError(
            "there is no such suite",
            where=path,
            found=f"neither a file of words nor one of the suites{suggestion(str(path), _SHIPPED)}",
            expected=f"a file whose name ends in .yaml, or one of {', '.join(_SHIPPED)}",
            hint=f"`plumbline suite {path}.yaml --new outcomes` writes a file to begin from",
        )
    return read_own_suite(path)


def _reads(family: object, suite: Suite) -> bool:
    return suite.family in getattr(family, "needs", ())


def _print_prompts(suite: Suite, *, every: bool) -> None:
    categories: dict[str, list[str]] = {}
    for candidate in suite.candidates:
        categories.setdefault(candidate.category, []).append(candidate.text)
    for category, texts in categories.items():
        shown = texts if every else texts[:_SHOWN]
        say(f"  {category} ({len(texts)})")
        for text in shown:
            say(f"    {text}")
        if len(texts) > len(shown):
            say(f"    and {len(texts) - len(shown)} more")


def _trained_on(suite: Suite) -> list[str]:
    trained = {text.lower() for text in (*load_sensitive_queries().texts, *neutral_captions().texts)}
    return [text for text in suite.texts if text.lower() in trained]


def _print_lengths(suite: Suite, *, config: Path | None, encoders: Sequence[str] | None) -> bool:
    """Print how long the prompts are to each encoder, and return whether one would refuse them."""
    lengths_of = [*_lengths(_audit_of(config), encoders, suite)]
    if not lengths_of:
        return False
    table = Table(title="Tokens", title_justify="left", box=SIMPLE_HEAD)
    for name in ("encoder", "longest", "limit", ""):
        table.add_column(name)
    refused, lost = False, []
    for name, lengths in lengths_of:
        if isinstance(lengths, str):
            table.add_row(safe(name), "", "", safe(lengths))
            continue
        refused |= bool(lengths.too_long) and not lengths.cuts
        words = "would be cut" if lengths.cuts else "would be refused"
        verdict = f"{len(lengths.too_long)} prompts {words}" if lengths.too_long else "all fit"
        verdict += f"; {lengths.alike} read like another prompt" if lengths.alike else ""
        table.add_row(safe(name), str(lengths.longest), str(lengths.limit), verdict)
        lost += [(name, long) for long in lengths.too_long[:_MOST_LONG]]
    console.print(table)
    for name, long in lost:
        say(f"  {name}: `{long.text}` has {long.tokens} tokens; `{long.lost}` is lost", style="red")
    return refused


def _audit_of(config: Path | None) -> Audit | None:
    """Return the audit file that is named, or the one that is there."""
    path = from_here("audit.yaml" if config is None else str(config))
    return read_audit(path) if config is not None or path.is_file() else None


def _lengths(
    audit: Audit | None, encoders: Sequence[str] | None, suite: Suite
) -> Iterator[tuple[str, TextLengths | str]]:
    named = encoders if encoders is not None else [*audit.used_encoders] if audit is not None else []
    for name in named:
        try:
            files = _files(audit, name)
            tower = getattr(files, "tower", None) or files
            lengths = text_lengths(find_family(tower.family), tower.folder, suite.texts)
        except PlumblineError as error:
            if encoders is not None:
                raise
            yield name, error.in_short
            continue
        yield name, lengths or "reads stored predictions: no text is tokenized"


def _files(audit: Audit | None, name: str) -> CheckpointFiles:
    fetched = default_home() / "checkpoints"
    entry = None if audit is None else audit.encoders.get(name)
    if entry is None:
        return checkpoint_files(name, name, project=here(), fetched=fetched)
    return checkpoint_files(
        name,
        entry.address,
        project=here(),
        fetched=fetched,
        family=entry.family,
        model=entry.model,
        embeddings=entry.embeddings,
    )
