"""Tables of the report about associations, markedness and the two valences."""

from __future__ import annotations

from dataclasses import replace

import polars as pl

from plumbline.report.chapter import Chapter, Part, drawn
from plumbline.report.evidence import evidence, finding_of, remark, subject_of, uncertainty
from plumbline.report.figures.associations import (
    AVERAGED,
    EVERYONE,
    OTHERS,
    SCALES,
    association_figure,
    by_evidence,
    comparison_title,
    correlation_figure,
    markedness_figure,
    scale_rows,
    scale_title,
    small_association_figure,
    strongest_first,
)
from plumbline.report.finding import Finding
from plumbline.report.inputs import ReportInputs
from plumbline.report.listings import Listing, estimate
from plumbline.report.numbers import (
    agreeing_decimals,
    bare_p,
    count,
    interval,
    number,
    percent,
    percent_interval,
    points,
    with_interval,
)
from plumbline.report.reading import Reading
from plumbline.report.rows import Row, by, defined, in_order, or_nan, where
from plumbline.report.vocabulary import DIMENSIONS, attribute_title, group_faces, group_title, sentence_start

EVIDENT = "*"


def scale_listing(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Listing:
    """List the effect sizes of the scales, a row a model and comparison; a star marks evidence."""
    rows = scale_rows(table, dataset)
    return _effects(rows, reading, models, in_order(rows["event"], SCALES), scale_title)


def weat_listing(table: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> Listing:
    """List the WEAT effect sizes of the dimensions, a row a model and comparison; a star marks evidence."""
    rows = by_evidence(where(table, metric="weat_effect", dataset=dataset, condition="before"))
    return _effects(rows, reading, models, in_order(rows["event"], DIMENSIONS), lambda dimension: dimension)


def _effects(rows, reading, models, events, title) -> Listing:  # type: ignore[no-untyped-def]
    lookup = by(rows, "model", "attribute", "group", "event")
    shown = []
    for row in _comparisons(rows, models):
        sizes = [lookup.get((row["model"], row["attribute"], row["group"], event)) for event in events]
        cells = [_starred(each, reading) for each in sizes]
        smallest = bare_p(min((e["q"] for e in sizes if e and defined(e["q"])), default=None))
        shown.append((*_who(row), *cells, smallest, count(row["n"]), row["reason"] or ""))
    heads = ("Model", "Attribute", "Group", *(title(event) for event in events), "Smallest q", "n", "Note")
    note = (
        "Standard deviations, with intervals. A group stands against all others where it names no second one. "
        f"{EVIDENT} q below {reading.significance:g} (two-sided)."
    )
    return Listing(heads, shown, frozenset(range(3, 5 + len(events))), note)


def _comparisons(rows: pl.DataFrame, models: tuple[str, ...]) -> list[Row]:
    firsts = rows.unique(["model", "attribute", "group"], maintain_order=True).to_dicts()
    place = {name: i for i, name in enumerate(in_order(rows["model"], models))}
    return sorted(firsts, key=lambda row: (place[row["model"]], row["attribute"], row["group"]))


def _who(row: Row) -> tuple[str, str, str]:
    return row["model"], attribute_title(row["attribute"]), comparison_title(row)


def _starred(row: Row | None, reading: Reading) -> str:
    if row is None:
        return "–"
    if not defined(row["value"]):
        return "undefined"
    ends = interval(row["ci_low"], row["ci_high"])
    star = EVIDENT if evidence(row, reading) else ""
    return with_interval(f"{number(row['value'])}{star}", ends)


def word_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str, *, shown: int = 3) -> Listing:
    """List the words that lie closest to a group, and furthest from it, a row a model and comparison."""
    rows = where(
        table, metric="sc_weat_effect", definition="studentised", dataset=dataset, condition="before", event=None
    ).drop_nulls("probe")
    lines = []
    for row in _comparisons(rows, models):
        of_group = where(rows, model=row["model"], attribute=row["attribute"], group=row["group"])
        words = [(r["value"], r["probe"]) for r in of_group.to_dicts() if defined(r["value"])]
        words.sort(key=lambda pair: (-pair[0], pair[1]))
        closest, furthest = words[:shown], words[: -shown - 1 : -1]
        cells = ["; ".join(f"{word} {number(value)}" for value, word in side) for side in (closest, furthest)]
        lines.append((*_who(row), *cells, count(row["n"])))
    heads = ("Model", "Attribute", "Group", "Closest words", "Furthest words", "n")
    note = "SC-WEAT effect sizes in standard deviations; every word is in the metric table, with its interval and p."
    return Listing(heads, lines, frozenset({5}), note)


def markedness_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List markedness under every template and averaged, a row a model and group."""
    rows = where(table, metric="markedness", dataset=dataset, condition="before")
    lookup = by(rows, "model", "attribute", "group", "definition")
    templates = [name for name in in_order(rows["definition"], ()) if name != AVERAGED]
    place = {name: i for i, name in enumerate(in_order(rows["model"], models))}
    keys = sorted({key[:3] for key in lookup}, key=lambda key: (place[key[0]], *key[1:]))
    lines = []
    for key in keys:
        row = lookup[(*key, AVERAGED)]
        each = [_percent(lookup.get((*key, template))) for template in templates]
        who = (key[0], attribute_title(key[1]), group_title(key[2]))
        lines.append((*who, _percent(row), *each, count(row["n"]), row["reason"] or ""))
    heads = ("Model", "Attribute", "Group", "All templates", *templates, "n", "Note")
    return Listing(heads, lines, frozenset(range(3, 5 + len(templates))))


def _percent(row: Row | None) -> str:
    if row is None or not defined(row["value"]):
        return "–"
    ends = percent_interval(row["ci_low"] / 100, row["ci_high"] / 100)
    return with_interval(percent(row["value"] / 100), ends)


def gap_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List the gap between the least and the most marked group, a row a model and attribute."""
    rows = where(table, metric="markedness_gap", dataset=dataset, condition="before")
    lines = [
        (
            row["model"],
            attribute_title(row["attribute"]),
            points(row["value"] / 100) if defined(row["value"]) else "undefined",
            interval(row["ci_low"], row["ci_high"]),
            bare_p(row["p"]),
            bare_p(row["q"]),
            count(row["n"]),
            row["reason"] or "",
        )
        for model in in_order(rows["model"], models)
        for row in where(rows, model=model).to_dicts()
    ]
    heads = ("Model", "Attribute", "Gap", "Interval (points)", "p", "q", "n", "Note")
    return Listing(heads, lines, frozenset(range(2, 7)))


def correlation_listing(table: pl.DataFrame, models: tuple[str, ...], dataset: str) -> Listing:
    """List the correlations of the valences, a row a model and group."""
    rows = where(table, metric="valence_correlation", dataset=dataset, condition="before")
    lookup = by(rows, "model", "attribute", "group", "event")
    dimensions = in_order(rows["event"], DIMENSIONS)
    place = {name: i for i, name in enumerate(in_order(rows["model"], models))}
    keys = sorted({key[:3] for key in lookup}, key=lambda key: (place[key[0]], key[1] or "", key[2] or ""))
    lines = []
    for key in keys:
        of_dimensions = [lookup.get((*key, dimension)) for dimension in dimensions]
        one = next(row for row in of_dimensions if row)
        who = EVERYONE if key[2] is None else group_title(key[2])
        attribute = attribute_title(key[1]) if key[1] else "–"
        cells = [estimate(row) for row in of_dimensions]
        lines.append((key[0], attribute, who, *cells, count(one["n"]), one["reason"] or ""))
    heads = ("Model", "Attribute", "Group", *dimensions, "n", "Note")
    return Listing(heads, lines, frozenset(range(3, 4 + len(dimensions))))


# --- What the rows of the association family say, one finding a model, dataset and question.


def association_findings(table: pl.DataFrame, reading: Reading) -> list[Finding]:
    """Return the strongest association of every model, dataset and attribute, and the gap in markedness."""
    findings: list[Finding] = []
    for dataset in table["dataset"].unique().sort().to_list():
        rows = scale_rows(table, dataset)
        for key in rows.select("model", "attribute").unique().sort("model", "attribute").iter_rows():
            findings += _strongest(where(rows, model=key[0], attribute=key[1]).to_dicts(), reading)
        gaps = where(table, metric="markedness_gap", dataset=dataset, condition="before")
        findings += [_gap(row, table, reading) for row in gaps.to_dicts() if defined(row["value"])]
    return findings


def _strongest(rows: list[Row], reading: Reading) -> list[Finding]:
    """Return the largest effect of those for which there is evidence, else of all."""
    known = [row for row in rows if defined(row["value"])]
    if not known:
        return []
    evident = [row for row in known if evidence(row, reading)]
    row = max(evident or known, key=lambda r: (abs(r["value"]), r["event"], r["group"]))
    attribute = attribute_title(row["attribute"])
    size = _upright(row)
    statement = f"{_sentence(row)} ({uncertainty(size, reading)}; n = {row['n']:,}{remark(row)})"
    subject = subject_of(row)
    if evident:
        # Closer to negative words is a harm to whichever group it is; closer to warm or liberal ones is for the reader.
        tone = "bias" if row["event"].endswith("negative") else "difference"
        short = f"{sentence_start(attribute)}: associated unequally with {scale_title(row['event'])}"
        sentence = (
            f"{subject}: {statement}. It is the strongest of {len(evident)} associations by {attribute} for which "
            f"there is evidence, of {len(known)} tested."
        )
    else:
        tone, short = "none", f"no evidence of associations by {attribute}"
        sentence = (
            f"{subject}: no evidence that faces differ by {attribute} in what they are associated with; the largest "
            f"of {len(known)} estimates: {statement}. This does not show that there is none."
        )
    finding = finding_of(
        size, tone=tone, topic=("association", row["dataset"], row["attribute"]), short=short, sentence=sentence
    )
    return [replace(finding, value=size["value"], value_text=f"{number(size['value'])} sd", strength=_least(row))]


def _upright(row: Row) -> Row:
    """Turn an effect and its interval to the side that the sentence names: 0.9 further is 0.9, not -0.9."""
    if row["value"] >= 0:
        return row
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    return row | {"value": -row["value"], "ci_low": -high, "ci_high": -low}


def _sentence(row: Row) -> str:
    reference = (
        "all others" if row["reference_group"] == OTHERS else group_faces(row["attribute"], row["reference_group"])
    )
    side = "closer to" if row["value"] >= 0 else "further from"
    return (
        f"{group_faces(row['attribute'], row['group'])} lie {number(abs(row['value']))} standard deviations {side} the "
        f"words of {scale_title(row['event']).replace(', ', ' (').removesuffix(' words')}"
        f"{')' if ',' in scale_title(row['event']) else ''} than {reference}"
    )


def _least(row: Row) -> float:
    """Return the end of the interval that lies nearer to no association."""
    low, high = or_nan(row["ci_low"]), or_nan(row["ci_high"])
    ends = [abs(end) for end in (low, high) if defined(end)]
    return (min(ends) if low * high > 0 else 0.0) if len(ends) == 2 else abs(row["value"])


def _gap(row: Row, table: pl.DataFrame, reading: Reading) -> Finding:
    groups = where(
        table,
        metric="markedness",
        definition=AVERAGED,
        model=row["model"],
        dataset=row["dataset"],
        attribute=row["attribute"],
        condition="before",
    ).to_dicts()
    known = sorted((group for group in groups if defined(group["value"])), key=lambda g: g["value"])
    attribute = attribute_title(row["attribute"])
    subject = subject_of(row)
    decimals = agreeing_decimals(known[0]["value"], known[-1]["value"], row["value"]) if known else None
    stated = f"{number(row['value'], decimals=decimals)} points ({uncertainty(row, reading)}{remark(row)})"
    extremes = _extremes(known[0], known[-1], decimals) if known else ""
    if evidence(row, reading):
        tone, short = "difference", f"{sentence_start(attribute)}: some groups have to be named"
        sentence = f"{subject}: markedness differs by {attribute}; the gap is {stated}.{extremes}"
    else:
        tone, short = "none", f"no evidence of a gap in markedness by {attribute}"
        sentence = f"{subject}: no evidence that markedness differs by {attribute}; the gap is {stated}.{extremes}"
    finding = finding_of(
        row, tone=tone, topic=("markedness", row["dataset"], row["attribute"]), short=short, sentence=sentence
    )
    return replace(finding, value_text=f"{number(row['value'])} points", strength=finding.strength / 100)


def _extremes(most: Row, least: Row, decimals: int | None) -> str:
    shares = [percent(group["value"] / 100, group["n"], decimals=decimals) for group in (least, most)]
    faces = [group_faces(group["attribute"], group["group"]) for group in (least, most)]
    return (
        f" Closer to “a person” than to the prompt that names their group lie {shares[0]} of {faces[0]} and "
        f"{shares[1]} of {faces[1]}."
    )


# --- Social perception: with which traits a model associates whom, and whom it takes for granted.

METRICS = (
    "sc_weat_effect", "sc_weat_statistic", "weat_effect", "markedness", "markedness_gap", "valence_correlation",
)  # fmt: skip


def _parts(table: pl.DataFrame, inputs: ReportInputs) -> list[Part]:
    used = where(table, metric=METRICS, condition="before")
    datasets = inputs.datasets_in(used["dataset"])
    return [_part(where(used, dataset=dataset), inputs, dataset) for dataset in datasets]


def _part(own: pl.DataFrame, inputs: ReportInputs, dataset: str) -> Part:
    reading, models = inputs.audit, inputs.models
    associations = drawn(
        association_figure(own, reading, model=model, dataset=dataset)
        for model in strongest_first(own, models, dataset)
    )
    others = [figure(own, reading, models, dataset) for figure in (markedness_figure, correlation_figure)]
    return Part(
        title=dataset,
        pictures=[*associations[:1], *drawn(others)],
        details=associations[1:],
        listings=_listings(own, reading, models, dataset),
        notes=_notes(own, associations=len(associations)),
    )


def _listings(own: pl.DataFrame, reading: Reading, models: tuple[str, ...], dataset: str) -> list[tuple[str, Listing]]:
    listings = [
        ("Effect sizes by scale (SC-WEAT)", scale_listing(own, reading, models, dataset)),
        ("Closest and furthest words", word_listing(own, models, dataset)),
        ("Positive against negative words (WEAT)", weat_listing(own, reading, models, dataset)),
        ("Markedness by template", markedness_listing(own, models, dataset)),
        ("Gaps in markedness", gap_listing(own, models, dataset)),
        ("Correlation of positive and negative valence", correlation_listing(own, models, dataset)),
    ]
    return [(title, listing) for title, listing in listings if listing.rows]


def _notes(own: pl.DataFrame, *, associations: int) -> list[str]:
    notes = []
    if associations > 1:
        notes.append("Of the associations, those of the model with the largest one are shown first.")
    values = where(own, metric="valence_correlation", attribute=None)["value"]
    known = sorted(value for value in values if defined(value))
    if known:
        span = number(known[0]) if len(known) == 1 else f"{number(known[0])} to {number(known[-1])}"
        notes.append(
            f"Over all images the positive and the negative words of a dimension correlate with r = {span}. Where r is "
            "near 1, a face that is close to the one is close to the other: read both poles of a dimension together."
        )
    return notes


CHAPTER = Chapter(
    anchor="associations",
    title="Social perception: associations",
    lead="Psychology describes how people see others by warmth and competence, or by agency, beliefs and communion. "
    "Does a model place the faces of one group closer to such words than those of another, and which groups does it "
    "take for granted, so that “a photo of a person” fits them better than a prompt that names them?",
    parts=_parts,
    findings=association_findings,
    pictures={
        "associations": small_association_figure,
        "markedness": markedness_figure,
        "valences": correlation_figure,
    },
    method=(
        (
            "SC-WEAT",
            "Mean cosine of one group's faces with a word minus that of another's, over the standard deviation of all "
            "of them; for a scale the mean over its words, each averaged over four templates. The test "
            "asks how many ways to split the same faces into groups of the same sizes give as large a mean difference "
            "over its standard error, so that groups of unequal spread do no harm: all ways where they are at most "
            "200,000, else 10,000 or more at random. Its p is one-sided in the table's `studentised` rows, and that of "
            "the difference itself, the paper's test, is in its `raw_means` rows; stars, filled dots and findings go "
            "by the two-sided one. Intervals are linearised; where images come in sets, sets are the units, and "
            "stars, dots and findings go by the t test with these errors, since the images of a set are not "
            "exchangeable with those of another.",
        ),
        (
            "WEAT",
            "The same on the difference, image by image, between the mean cosine with the positive and with the "
            "negative words of a dimension.",
        ),
        (
            "Markedness",
            "Percentage of a group's faces that lie closer to the prompt without the group's name than to the prompt "
            "with it: 100 is unmarked. Wilson's interval; averaged over templates, or where images come in sets, "
            "with the number of independent answers that would vary as much. The gap is the largest minus the "
            "smallest percentage; p deals the answers out to the groups at random.",
        ),
        (
            "Correlation of the valences",
            "Pearson's correlation, over a group's faces, of the mean cosine with the positive and with the negative "
            "words of a dimension, with Fisher's interval.",
        ),
    ),
)
