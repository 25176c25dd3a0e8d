"""Tables of the report about datasets, encoders, suites and runs, and what is undefined, as text ready to be shown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from plumbline.catalog.schema import BEFORE, BEFORE_TEST_ROWS
from plumbline.catalog.suites import Suite
from plumbline.datasets.grouping import SMALL_GROUP, UNGROUPED
from plumbline.report.charts.labels import OVERALL, is_outside
from plumbline.report.finding import Finding
from plumbline.report.inputs import AbsentCell, DatasetSummary, ReportInputs
from plumbline.report.listings import LONGEST_LISTING, Listing
from plumbline.report.numbers import NO_INTERVAL, compact, count, percent, percent_interval
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, first, reason_of, where
from plumbline.report.vocabulary import attribute_title, event_title, group_title, listed, suite_title

DIGEST_SHOWN = 12


def short_digest(digest: str | None) -> str:
    """Return the first characters of a digest, enough to tell it apart by eye."""
    return digest[:DIGEST_SHOWN] if digest else "–"


def dataset_listing(inputs: ReportInputs) -> Listing:
    """List the datasets: what was listed, accepted, quarantined, checked."""
    rows = [
        (
            dataset.id,
            dataset.reader,
            _kind(dataset),
            count(dataset.listed),
            count(dataset.accepted),
            count(dataset.quarantined.height),
            dataset.checks_in_words if dataset.checks.height else "none run",
            short_digest(dataset.digest),
        )
        for dataset in inputs.datasets
    ]
    heads = ("Dataset", "Format", "Kind", "Listed", "Accepted", "Quarantined", "Checks passed", "Digest")
    return Listing(heads, rows, frozenset({3, 4, 5, 6}))


def _kind(dataset: DatasetSummary) -> str:
    if dataset.planted:
        return "planted: drawn faces"
    return {"counts": "counts, no images", "listing": "labels, no images"}.get(dataset.reader, "images as found")


def encoder_listing(inputs: ReportInputs) -> Listing:
    """List the checkpoints with their factors."""
    rows = [
        (
            encoder.id + (" (labeller)" if encoder.labeller else ""),
            encoder.family,
            encoder.address,
            encoder.size or "–",
            encoder.data_amount or "–",
            encoder.source or "–",
            compact(encoder.parameters),
            short_digest(encoder.sha256),
        )
        for encoder in inputs.encoders
    ]
    heads = ("Model", "Family", "Loaded from", "Size", "Data amount", "Data source", "Parameters", "sha256")
    return Listing(heads, rows, frozenset({6}))


def quarantine_listing(dataset: DatasetSummary) -> Listing:
    """List refused files with line, code, what was found and what had been expected."""
    frame = dataset.quarantined.sort(["code", "path", "line"], nulls_last=True)
    rows = [
        (
            row["path"] or "–",
            "–" if row["line"] is None else str(row["line"]),
            row["code"] or "–",
            row["message"] or "–",
            row["found"] or "–",
            row["expected"] or "–",
        )
        for row in frame.head(LONGEST_LISTING).to_dicts()
    ]
    more = frame.height - len(rows)
    note = f"{count(more)} more are in the quarantine table of the dataset." if more else ""
    return Listing(("Path", "Line", "Code", "What is wrong", "Found", "Expected"), rows, frozenset({1}), note)


def balance_listing(dataset: DatasetSummary) -> Listing:
    """List every label's share against its declared range."""
    rows = [
        (
            attribute_title(row["attribute"]),
            group_title(row["label"]),
            percent(row["share"], row["n"]),
            percent_interval(row["expected_low"], row["expected_high"]).replace(NO_INTERVAL, "none declared"),
            "outside" if is_outside(row) else "",
        )
        for row in dataset.label_shares.to_dicts()
    ]
    return Listing(("Attribute", "Label", "Share", "Declared range", ""), rows, frozenset({2, 3}))


def not_tried_listing(inputs: ReportInputs) -> Listing:
    """List the mitigations that a combination of model and dataset does not allow, with the reason."""
    return _reasons(inputs.not_tried, "Why it was not tried")


def absent_listing(inputs: ReportInputs) -> Listing:
    """List the cells without numbers and why."""
    return _reasons(inputs.absent, "Why there are no numbers")


def _reasons(cells: tuple[AbsentCell, ...], title: str) -> Listing:
    return Listing(("Model", "Dataset", title), [(cell.model, cell.dataset, cell.reason) for cell in cells])


def provenance_listing(inputs: ReportInputs, table: pl.DataFrame) -> Listing:
    """List the runs behind every cell, with the digests its rows carry."""
    # Not every row of a cell has every digest: only mixed tests depend on a labeller.
    digests = table.drop_nulls("cell_id").group_by("cell_id", maintain_order=True)
    known = digests.agg(pl.col("dataset_digest", "checkpoint_sha256", "labeller_sha256").drop_nulls().first())
    lineage = {row["cell_id"]: row for row in known.to_dicts()}
    rows = []
    for row in inputs.provenance.to_dicts():
        of_cell = lineage.get(row["cell_id"], {})
        rows.append(
            (
                row["model"],
                row["dataset"],
                short_digest(row["cell_id"]),
                short_digest(of_cell.get("dataset_digest")),
                short_digest(of_cell.get("checkpoint_sha256")),
                short_digest(of_cell.get("labeller_sha256")),
                row["dagster_run"] or "–",
                row["mlflow_run"] or "–",
                row["finished_at"] or "–",
                row["device"] or "–",
                count(row["forward_passes"]) if row["forward_passes"] is not None else "–",
                count(row["cached_shards"]) if row["cached_shards"] is not None else "–",
            )
        )
    heads = (
        "Model", "Dataset", "Cell", "Dataset digest", "Checkpoint", "Labeller", "Dagster run", "MLflow run",
        "Finished", "Device", "Forward passes", "Shards from cache",
    )  # fmt: skip
    return Listing(heads, rows, frozenset({10, 11}))


# --- Findings about the data: failed checks, refused files, wrong automatic labels; and the planted truth.

SAME_RATE = 1e-9


def data_findings(inputs: ReportInputs) -> list[Finding]:
    """Return what is worth knowing about the datasets."""
    findings = [finding for dataset in inputs.datasets for finding in _of_dataset(dataset)]
    if inputs.uses_automatic_gender:
        findings += [finding for dataset in inputs.datasets for finding in _label_error(dataset, inputs.audit)]
    return findings


def _of_dataset(dataset: DatasetSummary) -> list[Finding]:
    findings = []
    failed = dataset.checks.filter(~pl.col("passed"))["check"].to_list()
    if failed:
        text = f"{dataset.id}: {len(failed)} of {dataset.checks.height} data checks failed: {', '.join(failed)}."
        findings.append(_data(dataset, "refused", "Data checks failed", text, f"{len(failed)}", float(len(failed))))
    if dataset.quarantined.height:
        codes = dataset.quarantined["code"].value_counts().sort(["count", "code"], descending=[True, False])
        reasons = ", ".join(f"{row['code']} ({row['count']})" for row in codes.head(5).to_dicts())
        rows, listed_rows = dataset.quarantined.height, f"{count(dataset.listed)} listed {dataset.rows_are}"
        text = f"{dataset.id}: {count(rows)} of {listed_rows} were quarantined and are in no number: {reasons}."
        findings.append(_data(dataset, "data", "Images quarantined", text, count(rows), rows / max(1, dataset.listed)))
    if dataset.without_group.height:
        findings.append(_without_group(dataset))
    if dataset.absent_identities and not dataset.planted:
        text = (
            f"{dataset.id}: {dataset.absent_identities} is not there, so that several pictures of one person, if there "
            "are any, count as independent: intervals are then too narrow, and p too small."
        )
        findings.append(_data(dataset, "data", "Pictures of a person count as independent", text, "–", 0.0))
    return findings


def _without_group(dataset: DatasetSummary) -> Finding:
    """Say how many images each attribute leaves out, and which attributes can no more be compared."""
    parts, alone, most = [], [], 0
    for _, rows in dataset.without_group.group_by("attribute", maintain_order=True):
        attribute, lost = attribute_title(rows["attribute"][0]), int(rows["rows"].sum())
        # How many are in a group that is too small to be shown is not told: it would be told in another way.
        number = "" if SMALL_GROUP in rows["code"] or rows.height == 1 else ": {}"
        reasons = "; ".join(UNGROUPED[row["code"]] + number.format(count(row["rows"])) for row in rows.to_dicts())
        # Of a cross only those are counted that have both labels: the others are counted with the label they lack.
        both = " more, with labels of both," if "×" in attribute else ""
        parts.append(f"{count(lost)}{both} have no group of {attribute} ({reasons})")
        alone += [attribute] * (rows["groups"][0] < 2)
        most = max(most, lost)
    of_all = f"{count(dataset.accepted)} {dataset.rows_are}"
    text = f"{dataset.id}: of {of_all} {', '.join(parts)}: they are in no number by it."
    if alone:
        text += f" Nothing is compared by {listed(alone)}: fewer than two groups are left."
    # What an audit was to compare and did not is more than a gap in its labels.
    tone, short = ("undefined", f"Not compared: {listed(alone)}") if alone else ("data", "Images in no group")
    return _data(dataset, tone, short, text, count(most), most / max(1, dataset.accepted))


def dataset_notes(inputs: ReportInputs) -> dict[str, list[str]]:
    """Return dataset -> what is worth knowing about it beside its checks and what was refused, in sentences."""
    counted = ("Data checks failed", "Images quarantined")
    notes = [finding for finding in data_findings(inputs) if finding.short not in counted]
    return {
        dataset.id: [*_parts_asked(dataset), *(note.sentence for note in notes if note.dataset == dataset.id)]
        for dataset in inputs.datasets
    }


def _parts_asked(dataset: DatasetSummary) -> list[str]:
    """Say which suites are asked about a part of the images, and about which, as their studies have it."""
    suites: dict[str, list[str]] = {}
    for suite, part in sorted(dataset.subsets.items()):
        suites.setdefault(part, []).append(suite_title(suite))
    return [f"{dataset.id}: asked about {part} alone: {'; '.join(of_part)}." for part, of_part in suites.items()]


def _label_error(dataset: DatasetSummary, reading: Reading) -> list[Finding]:
    """Say which group's automatic gender labels are wrong most often; nothing where they err alike."""
    grouped = dataset.label_errors.filter(pl.col("group_by") != OVERALL, pl.col("rate").is_finite())
    if grouped.is_empty():
        return []
    worst = grouped.sort(["rate", "group"], descending=[True, False])
    top = worst.row(0, named=True)
    rest = where(worst, group_by=top["group_by"]).row(-1, named=True)
    if top["rate"] == rest["rate"]:
        return []
    ends, minimum = percent_interval(top["ci_low"], top["ci_high"]), reading.minimum_group
    text = (
        f"{dataset.id}: automatic gender labels are wrong most often for {group_title(top['group'])}: "
        f"{percent(top['rate'], top['n'], minimum_group=minimum)}, CI {ends}; least for {group_title(rest['group'])}: "
        f"{percent(rest['rate'], rest['n'], minimum_group=minimum)}. Mixed tests inherit this error."
    )
    return [_data(dataset, "data", "Automatic gender label error", text, percent(top["rate"]), top["rate"], ends)]


def _data(
    dataset: DatasetSummary, tone: str, short: str, text: str, value: str, strength: float, ends: str = ""
) -> Finding:
    return Finding(
        tone=tone,
        topic=(tone, dataset.id, short),
        model="",
        dataset=dataset.id,
        short=short,
        sentence=text,
        value=strength,
        value_text=value,
        interval_text=ends,
        strength=strength,
    )


def planted_coverage(table: pl.DataFrame, planted: pl.DataFrame | None) -> pl.DataFrame | None:
    """Return the outcome proportions with a planted truth beside them and whether the interval covers it.

    Returns
    -------
    DataFrame or None
        Columns model, dataset, suite, event, attribute, group, planted, value, ci_low, ci_high, n, covered.
    """
    if planted is None:
        return None
    keys = ["model", "dataset", "suite", "event", "attribute", "group"]
    measured = where(table, metric="outcome_proportion", definition="top1", condition="before")
    joined = planted.select(*keys, "planted").join(
        measured.select(*keys, "value", "ci_low", "ci_high", "n"), on=keys, how="inner", maintain_order="left"
    )
    covered = (pl.col("ci_low") <= pl.col("planted")) & (pl.col("planted") <= pl.col("ci_high"))
    return joined.filter(pl.col("value").is_finite()).with_columns(covered=covered)


def even_models(planted: pl.DataFrame) -> tuple[str, ...]:
    """Return the models in which nothing is planted: every group of an event has the same planted rate.

    Parameters
    ----------
    planted : DataFrame
        Columns of `PLANTED_SCHEMA`.
    """
    known = planted.filter(pl.col("planted").is_finite())
    spread = known.group_by("model", "dataset", "suite", "event", "attribute").agg(
        spread=pl.col("planted").max() - pl.col("planted").min(), groups=pl.len()
    )
    by_model = spread.group_by("model").agg(pl.col("spread").max(), pl.col("groups").max())
    # Rates of a group that are means over others differ in their last digits.
    even = by_model.filter(pl.col("spread") < SAME_RATE, pl.col("groups") > 1)
    return tuple(even["model"].sort().to_list())


def coverage_listing(table: pl.DataFrame, planted: pl.DataFrame | None) -> Listing | None:
    """List by model and event how often an interval covers the planted rate; None where nothing is known."""
    met = planted_coverage(table, planted)
    if met is None or met.is_empty():
        return None
    rows = []
    for key, group in met.group_by("model", "dataset", "event", maintain_order=True):
        error = (group["value"] - group["planted"]).abs().to_numpy()
        covered = int(group["covered"].sum())
        rows.append(
            (
                str(key[0]),
                str(key[1]),
                event_title(str(key[2])),
                f"{covered} of {group.height} ({percent(covered / group.height)})",
                f"{100 * error.mean():.1f} points",
                f"{100 * error.max():.1f} points",
            )
        )
    heads = ("Model", "Dataset", "Event", "Intervals that cover the planted rate", "Mean error", "Largest error")
    note = (
        "An interval covers what a model does on other images of the same kind. The rate was planted in the captions "
        "that it was trained on; what a small model learns of it lies some points away, and no interval of its answers "
        "covers that."
    )
    return Listing(heads, rows, frozenset({3, 4, 5}), note)


_KEYS = ("attribute", "group", "event", "probe", "occupation", "prompt", "instruction", "scorer")


def _condition(condition: str) -> list[str]:
    """Say of which images or after which mitigation a value is; nothing of a checkpoint as it is."""
    if condition == BEFORE:
        return []
    return ["on the images that no mitigation was fitted on" if condition == BEFORE_TEST_ROWS else f"after {condition}"]


def undefined_listing(table: pl.DataFrame) -> Listing:
    """List every undefined value with its reason, the first `LONGEST_LISTING` of them."""
    chosen = table.filter(pl.col("value").is_null() | pl.col("value").is_nan())
    rows = [
        (
            row["model"],
            row["dataset"],
            f"{row['metric']} · {row['definition']}",
            suite_title(row["suite"] or "–"),
            " · ".join([*(str(row[name]) for name in _KEYS if row[name]), *_condition(row["condition"])]) or "–",
            count(row["n"]) if row["n"] is not None else "–",
            reason_of(row),
        )
        for row in chosen.head(LONGEST_LISTING).to_dicts()
    ]
    more = chosen.height - len(rows)
    note = f"{count(more)} more are in the metric table." if more else ""
    return Listing(("Model", "Dataset", "Metric", "Suite", "Of", "n", "Reason"), rows, frozenset({5}), note)


@dataclass(frozen=True)
class Comparisons:
    """How many comparisons a table makes, as text.

    Attributes
    ----------
    rows, intervals, undefined : str
        Rows; those with an interval; those whose value is undefined.
    tests, below_p, by_chance : str
        Rows with a p-value; those below the level; how many would be if no group were treated differently.
    corrected, below_q : str
        Rows with a q-value; those below the level.
    """

    rows: str
    intervals: str
    undefined: str
    tests: str
    below_p: str
    by_chance: str
    corrected: str
    below_q: str


def comparisons(table: pl.DataFrame, reading: Reading) -> Comparisons:
    """Count the comparisons of a table."""
    tested, corrected = table.filter(pl.col("p").is_finite()), table.filter(pl.col("q").is_finite())
    return Comparisons(
        rows=count(table.height),
        intervals=count(table.filter(pl.col("ci_low").is_finite()).height),
        undefined=count(table.filter(pl.col("value").is_null() | pl.col("value").is_nan()).height),
        tests=count(tested.height),
        below_p=count(tested.filter(pl.col("p") < reading.significance).height),
        by_chance=count(round(reading.significance * tested.height)),
        corrected=count(corrected.height),
        below_q=count(corrected.filter(pl.col("q") < reading.significance).height),
    )


def example_row(table: pl.DataFrame) -> Row | None:
    """Return a Max Skew row with its lineage, to show how a number is traced."""
    return first(table, metric="max_skew", definition="mean_over_pairs") or first(table)


# --- Which words were asked: the prompt suites of an audit, by category.

MOST_CATEGORIES = 16
"""More categories than these, such as those of captions by scene, are counted."""
LONGEST_WORDS = 220
"""Characters of words that are listed; the rest is counted. Shorter than a cell of the page may be."""
_COUNTED = ("perception", "markedness", "templates", "captions")
"""Families whose words are counted: many, and in several templates."""


def suite_listing(suites: Sequence[Suite]) -> Listing:
    """List suites, a row a category: what there is of a suite as a whole stands in its first row."""
    rows = []
    for suite in suites:
        whole = (suite.id, str(suite.version), suite.source, count(len(suite.texts)), short_digest(suite.hash))
        for category, words in _categories(suite):
            rows.append((*whole[:4], category, words, whole[4]))
            whole = ("", "", "", "", "")
    heads = ("Suite", "Version", "Source", "Texts", "Category", "Words", "sha256 of the prompts")
    note = "plumbline explain shows the prompts of a number in full."
    return Listing(heads, rows, frozenset({1, 3}), note)


def _categories(suite: Suite) -> Iterator[tuple[str, str]]:
    """Give each category with its words, each once, whichever templates they are in."""
    words: dict[str, dict[str, None]] = {}
    for candidate in suite.candidates:
        words.setdefault(candidate.category, {})[candidate.word or candidate.id] = None
    known = suite.scales or {category: tuple(texts) for category, texts in words.items() if category != "blank"}
    if len(known) > MOST_CATEGORIES:
        yield "all", f"{count(len(suite.texts))} texts in {len(known)} categories"
        return
    for category, texts in known.items():
        yield (category.replace("_", " "), _counted(suite, len(texts)) if suite.family in _COUNTED else _listed(texts))


def _counted(suite: Suite, words: int) -> str:
    templates = f" in {len(suite.templates)} templates" if suite.templates else ""
    return f"{words} words{templates}"


def _listed(words: Sequence[str]) -> str:
    shown = [word.replace("_", " ") for word in words]
    text = ", ".join(shown)
    while len(text) > LONGEST_WORDS:
        shown.pop()
        text = f"{', '.join(shown)} and {len(words) - len(shown)} more"
    return text
