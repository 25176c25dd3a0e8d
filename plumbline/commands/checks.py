"""What `plumbline check` prints: each dataset and model as an audit will find it, and what would refuse it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, isnan
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from plumbline.catalog.suites import TRIDENT_SUITES, ZERO_SHOT, Suite, load_suite
from plumbline.checkpoints.addresses import STORED, parse_address
from plumbline.checkpoints.pickled import CONVERTED, readable_folder
from plumbline.commands.places import dataset_place, here
from plumbline.commands.terminal import console, safe, say
from plumbline.config.audit import Audit
from plumbline.config.entries import Predictions
from plumbline.datasets.grouping import SMALL_GROUP, UNGROUPED
from plumbline.datasets.preview import LOOKED_AT, Preview, preview, refused_words
from plumbline.datasets.records import UnmappedValues
from plumbline.encoders.families import Family, answers
from plumbline.encoders.folders import CONFIGURATIONS
from plumbline.encoders.plan import architecture_summary
from plumbline.encoders.stored_embeddings import EmbeddingsSettings, embedding_contents, stored_images
from plumbline.encoders.stored_predictions import stored_tables, table_of_dataset
from plumbline.encoders.text_lengths import text_lengths
from plumbline.errors import ConfigError, PlumblineError, examples, suggestion
from plumbline.generators.design import compared_by, pictured, require_images
from plumbline.metrics.disparities import PlannedPower, planned_power
from plumbline.mitigations.possible import require_possible, why_not_fitted
from plumbline.mitigations.settings import METHODS
from plumbline.report.vocabulary import attribute_title, group_title, listed
from plumbline.statistics.power import LEAST_EVENTS

_MOST_GROUPS = 8


def print_checks(
    audit: Audit,
    *,
    home: Path,
    rate: float,
    generators: Callable[[Mapping[str, Preview]], Mapping[str, str]] | None = None,
    mistakes: Sequence[object] = (),
) -> int:
    """Print what an audit will find, and return how many things are bound to make it fail.

    Parameters
    ----------
    rate : float
        Share of images in an event, for what can be found.
    generators : callable, optional
        From what was read of the datasets to generative model -> what is wrong with it; nothing where nothing is.
    mistakes : sequence of errors or texts
        What else is known to be wrong.
    """
    previews: dict[str, Preview] = {}
    failing = len(mistakes)
    for mistake in mistakes:
        say(mistake, style="red")
    for dataset in audit.used_datasets or audit.datasets:
        try:
            previews[dataset] = _previewed(audit, dataset, home=home)
        except PlumblineError as error:
            say(f"{dataset}: {error}", style="red")
            failing += 1
            continue
        _print_dataset(dataset, previews[dataset])
        failing += len(previews[dataset].failing)
        if dataset in audit.asked_datasets:
            failing += _print_compared_by(audit, dataset, previews[dataset])
    failing += _print_models(
        {encoder: _wrong_encoder(audit, encoder, previews, home=home) for encoder in audit.used_encoders}
        | dict(generators(previews) if generators else {})
    )
    if not (audit.cells or audit.designs):
        say("`audit` asks nothing that these models and datasets can answer", style="red")
        failing += 1
    groups = {dataset: one.groups for dataset, one in previews.items()}
    draws = audit.statistics.permutations
    print_detectable(planned_power(audit.cells, groups, rate=rate, permutations=draws, suite=audit.suite), rate)
    verdict = "Nothing stands against this audit." if not failing else f"{failing} reason(s) why this audit would fail."
    say(verdict, style="red" if failing else "green")
    return failing


def doomed_datasets(audit: Audit, datasets: Iterable[str], *, home: Path) -> dict[str, list[str]]:
    """Return the datasets that are bound to be refused -> why, in the words of `plumbline check`.

    Tables and labels are read, and no image is opened: what only images can tell is found when they are read.
    """
    doomed = {}
    for dataset in datasets:
        try:
            why = _previewed(audit, dataset, home=home, looked_at=0).failing
        except PlumblineError as error:
            why = [str(error)]
        if why:
            doomed[dataset] = why
    return doomed


def require_undoomed(doomed: Mapping[str, list[str]], audit: Audit, path: Path) -> None:
    """Say which datasets will be refused, and refuse the audit at once where nothing else is left, or it is strict.

    Raises
    ------
    ConfigError
        With everything that `plumbline check` finds.
    """
    if not doomed:
        return
    refusals = [f"{dataset}: {reason}" for dataset, reasons in doomed.items() for reason in reasons]
    if audit.strict or not set(audit.audited_datasets) - set(doomed):
        raise ConfigError(
            "this audit is bound to fail: nothing was embedded\n" + "\n".join(f"  - {one}" for one in refusals),
            where=path,
            hint="`plumbline check` tells more",
        )
    for one in refusals:
        say(f"will be refused: {one}", style="red")


def _wrong_encoder(audit: Audit, encoder: str, previews: Mapping[str, Preview], *, home: Path) -> str:
    """Return what is wrong with an encoder, or with what it is asked, empty if nothing; no weights are loaded."""
    entry, fetched = audit.encoders[encoder], home / "checkpoints"
    try:
        folder = parse_address(entry.address, project=here()).folder_in(fetched)
        if not entry.address.startswith(STORED):
            of = f"encoder `{encoder}`"
            kept = fetched / CONVERTED
            folder = readable_folder(folder, of, kept=kept, model=entry.model, project=here())
            place = parse_address(f"local-dir:{folder}", project=here())
            place.folder_with(CONFIGURATIONS, fetched=fetched, what=of, fetch=f"`plumbline fetch {encoder}`")
        summary = architecture_summary(
            encoder, entry.address, folder, family=entry.family, embeddings=entry.embeddings, sizes=home / "sizes"
        )
        wrong = [
            _too_long(audit, encoder, summary.family, folder),
            _wrong_stored(audit, encoder, previews, home=home),
            _wrong_mitigations(audit, encoder, summary.family, previews),
        ]
    except PlumblineError as error:
        return str(error)
    return "\n".join(filter(None, wrong))


def _wrong_mitigations(audit: Audit, encoder: str, family: Family, previews: Mapping[str, Preview]) -> str:
    """Return which mitigations that the audit file names are not possible, and print which will not be tried."""
    wrong, stored = [], audit.encoders[encoder].address.startswith(STORED)
    for (dataset, model), tried in audit.mitigated.items():
        if model != encoder or dataset not in previews:
            continue
        suites, where = _suites_of(audit, dataset, encoder, family), f"{dataset}|{encoder}"
        for name in [name for name, named in tried.items() if named]:
            settings = audit.mitigations[name]
            if stored and not METHODS[settings.method].needs <= family.offers:
                why = "it needs a model"
            else:
                try:
                    labels = audit.grouped_by(dataset)
                    require_possible(name, settings, suites, family=family, labels=labels, where=where)
                except ConfigError as error:
                    wrong.append(str(error))
                    continue
                why = why_not_fitted(settings, suites, previews[dataset].records)
            if why:
                say(f"{where}: the mitigation `{name}` will not be tried: {why}", style="yellow")
    return "\n".join(dict.fromkeys(wrong))


def _suites_of(audit: Audit, dataset: str, encoder: str, family: Family) -> list[Suite]:
    """Return the suites that an encoder is asked of a dataset, but for accuracy on classes."""
    classes, wording = audit.declarations[dataset].class_set, audit.encoders[encoder].wording or family.wording
    suites = [
        load_suite(name, classes=classes, wording=wording) if name in TRIDENT_SUITES else audit.suite(name)
        for name in audit.cells.get((dataset, encoder), ())
        if name != ZERO_SHOT
    ]
    return [suite for suite in suites if (dataset, encoder, suite.id) in audit.named or answers(family, suite)]


def _too_long(audit: Audit, encoder: str, family: Family, folder: Path) -> str:
    """Return which prompts that an encoder is asked are longer than it takes; empty where it takes, or cuts, them all.

    Suites whose words depend on the dataset are left out: their classes are a few words.
    """
    asked = dict.fromkeys(name for (_, model), suites in audit.cells.items() if model == encoder for name in suites)
    suites = [audit.suite(name) for name in asked if name not in (ZERO_SHOT, *TRIDENT_SUITES)]
    lengths = text_lengths(family, folder, [*dict.fromkeys(t for suite in suites for t in suite.texts)])
    if lengths is None or lengths.cuts:
        return ""
    tokens = {long.text: long.tokens for long in lengths.too_long}
    wrong = []
    for suite in suites:
        if beyond := [text for text in suite.texts if text in tokens]:
            longest = max(beyond, key=tokens.__getitem__)
            wrong.append(
                f"{len(beyond)} prompts of the suite `{suite.id}` are longer than the {lengths.limit} tokens that this "
                f"encoder takes, such as `{longest}` with {tokens[longest]}"
            )
    return "\n".join(wrong)


def _wrong_stored(audit: Audit, encoder: str, previews: Mapping[str, Preview], *, home: Path) -> str:
    """Return what is wrong with embeddings or predictions that are stored, for the images that were looked at."""
    entry = audit.encoders[encoder]
    if not entry.address.startswith(STORED):
        return ""
    wrong = []
    for dataset, model in audit.cells:
        if model == encoder and dataset in previews:
            try:
                _require_stored(audit, dataset, encoder, previews[dataset], home=home)
            except PlumblineError as error:
                wrong.append(str(error))
    return "\n".join(dict.fromkeys(wrong))


def _require_stored(audit: Audit, dataset: str, encoder: str, known: Preview, *, home: Path) -> None:
    """Refuse embeddings that lack an image or cannot be used, and tables that answer no suite of a cell."""
    entry, of = audit.datasets[dataset], audit.encoders[encoder]
    address, settings = parse_address(of.address, project=here()), of.embeddings or EmbeddingsSettings()
    path = address.folder_in(home / "checkpoints")
    # A dataset without images on this disk is known whole.
    images = known.records if known.seen is None else known.seen
    if embedding_contents(path, settings) is not None:
        stored_images(path, settings, dataset, images)
        return
    stored_tables(address, encoder)
    predictions = of.predictions or Predictions()
    table = table_of_dataset(
        path,
        dataset,
        encoder,
        columns=entry.map,
        reader=entry.reader,
        root=dataset_place(entry.root, home=home),
        names=predictions.names,
        image=predictions.image,
    )
    suites = [audit.suite(name) for name in audit.cells[dataset, encoder] if audit.suite_family(name) == "outcomes"]
    if suites and not any(table.answers(suite) for suite in suites):
        table.require(suites)
    table.require_images()
    table.chosen([suite for suite in suites if table.answers(suite)], images)


def _previewed(audit: Audit, dataset: str, *, home: Path, looked_at: int = LOOKED_AT) -> Preview:
    entry = audit.datasets[dataset]
    limit = audit.thresholds.quarantine_rate if entry.quarantine_rate is None else entry.quarantine_rate
    with console.status(f"{safe(dataset)}: reading"):
        return preview(
            entry.open_reader(),
            dataset_place(entry.root, home=home),
            dataset=dataset,
            balance=entry.balance,
            most_refused=limit,
            looked_at=looked_at,
        )


def _print_dataset(dataset: str, seen: Preview) -> None:
    looked = f", {seen.looked_at:,} looked at" if seen.looked_at else ""
    say(f"{dataset}: {seen.listed:,} images listed{looked}", style="bold")
    for (code,), rows in seen.refused.group_by("code", maintain_order=True):
        say(f"  refused, {code}: {rows.height:,}, such as {examples(map(refused_words, rows.to_dicts()))}")
    for groups in seen.groups:
        counted = Counter(groups.names[code] for code in groups.codes.tolist() if code >= 0)
        largest = sorted(counted.items(), key=lambda one: (-one[1], one[0]))
        named = [f"{group_title(name)} {size:,}" for name, size in largest[:_MOST_GROUPS]]
        more = f" and {len(largest) - _MOST_GROUPS} more" if len(largest) > _MOST_GROUPS else ""
        say(f"  {attribute_title(groups.attribute)}: {', '.join(named) or 'no group'}{more}")
    for row in seen.ungrouped.iter_rows(named=True):
        values = seen.unmapped.get(row["attribute"]) if row["code"] == "unmapped" else None
        why = (
            UNGROUPED[row["code"]]
            if values is None
            else _unmapped_words(dataset, row["attribute"], values, least=seen.least_shown)
        )
        of_cross = "×" in attribute_title(row["attribute"])
        if row["code"] == SMALL_GROUP and row["rows"] >= seen.least_shown and not of_cross:
            # A large group is left out where it alone would tell who is in the small one.
            why += (
                f"; name the values to compare in `datasets.{dataset}.map.values.{row['attribute']}` to keep the large"
            )
        both = " with labels of both" if of_cross else ""
        say(f"  {row['rows']:,} images{both} are in no group of {attribute_title(row['attribute'])}: {why}")
    codes = seen.ungrouped.select("attribute", "code").to_dicts()
    for groups in seen.groups:
        if len(groups.names) < 2:
            small = {"attribute": groups.attribute, "code": SMALL_GROUP}
            hint = "; `map.min_shown: 1` shows small groups" if small in codes else ""
            left = "one group" if groups.names else "no group"
            lost = f"{left} of it is left, so that it is not compared{hint}"
            say(f"  {attribute_title(groups.attribute)}: {lost}", style="yellow")
    if not seen.groups:
        say("  no attribute has groups: only totals can be audited", style="yellow")
    for reason in seen.failing:
        say(f"  would refuse the audit: {reason}", style="red")


def _print_compared_by(audit: Audit, dataset: str, seen: Preview) -> int:
    """Say by what answers about a dataset are not compared, or why nobody can be asked, and return how many reasons."""
    declared = audit.declarations[dataset]
    wrong: list[str] = []
    try:
        by, people = compared_by(seen.records, declared), pictured(seen.records, declared)
    except ConfigError as error:
        say(f"  would refuse the audit: {error}", style="red")
        return 1
    for entry in [entry for (_, name), entries in audit.designs.items() if name == dataset for entry in entries]:
        try:
            require_images(entry, dataset, {dataset: people})
        except ConfigError as error:
            wrong.append(str(error))
    for reason in dict.fromkeys(wrong):
        say(f"  would refuse the audit: {reason}", style="red")
    if by.others:
        compared, others = (listed(map(attribute_title, names)) for names in by)
        say(f"  answers of generative models are compared by {compared} alone, not by {others}", style="yellow")
    return len({*wrong})


def _unmapped_words(dataset: str, attribute: str, values: UnmappedValues, *, least: int) -> str:
    """Say which values of an attribute have no group, but for those of few people, and the key that would name them."""
    shown = {value: rows for value, rows in values.rows.items() if rows >= least}
    few = len(values.rows) - len(shown)
    met = [f"`{value}` ({rows:,} rows{suggestion(value, values.known)})" for value, rows in shown.items()]
    met += [f"{few:,} value{'s' * (few != 1)} of fewer than {least} rows"] if few else []
    return f"`datasets.{dataset}.map.values.{attribute}` does not name {examples(met)}"


def _print_models(wrong: Mapping[str, str]) -> int:
    if not wrong:
        return 0
    say("Models", style="bold")
    for model, what in wrong.items():
        words = what.replace("\n", "\n  ") or "nothing is wrong with its files"
        say(f"  {model}: {words}", style="red" if what else None)
    return sum(map(bool, wrong.values()))


def print_detectable(planned: Iterable[PlannedPower], rate: float) -> None:
    """Print which differences between groups the audit can find, at an assumed share of images in an event."""
    planned = list(planned)
    if not planned:
        return
    table = Table(title="Found by 80% of such audits", title_justify="left", box=SIMPLE_HEAD)
    for name in ("dataset | attribute", "groups", "images", "smallest group", "max skew", "parity difference"):
        table.add_column(name, justify="left" if "|" in name else "right")
    untold = any(isnan(value) for one in planned for value in (one.skew, one.parity))
    few_draws = untold and planned[0].level * planned[0].permutations < 1
    nothing = "too few permutations" if few_draws else "too few images"
    few_events = [min(one.sizes) * min(rate, 1 - rate) < LEAST_EVENTS for one in planned]
    for one, few in zip(planned, few_events):
        table.add_row(
            safe(f"{one.dataset} | {one.attribute}"),
            f"{len(one.sizes):,}",
            f"{sum(one.sizes):,}",
            f"{min(one.sizes):,}",
            ("not told" if few else nothing) if isnan(one.skew) else f"{one.skew:.2g}",
            nothing if isnan(one.parity) else f"{100 * one.parity:.2g} points",
        )
    console.print(table)
    say(
        f"One group apart from the others, at a share of {rate:.0%} of the images (assumed; --rate), found "
        f"at p = {planned[0].level:.2g}, which the correction of {planned[0].tests:,} tests requires of a lone "
        "difference. Images are counted as independent, sets of one person or scene not allowed for."
        + f" No skew is told where the smallest group expects fewer than {LEAST_EVENTS:.0f} images of the event."
        * any(few_events)
        + f" With {planned[0].permutations:,} permutations p hardly becomes so small: raise `statistics.permutations` "
        f"to {ceil(2 / planned[0].level):,}, or ask less." * few_draws
    )
