"""What the numbers about generated texts rest on, said before they are shown."""

from __future__ import annotations

from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import count
from plumbline.report.vocabulary import listed


def foundations(inputs: ReportInputs) -> list[str]:
    """Return plain sentences: who answered how often, who scored, what is planted, what failed."""
    answers = [f"{one.id} ({count(one.rows)})" for one in inputs.lvlms]
    notes = [f"Answers: {listed(answers)}."] if answers else []
    return [*notes, *_scorers(inputs), *_planted(inputs), *_beneath(inputs), *_failed(inputs)]


def _scorers(inputs: ReportInputs) -> list[str]:
    reading = inputs.reading
    if not reading.scorers:
        return []
    stand_ins = [name for name in reading.scorers if name in reading.stand_ins]
    real = [name for name in reading.scorers if name not in stand_ins]
    notes = []
    if stand_ins:
        names, verb = listed(f"“{name}”" for name in stand_ins), "is" if len(stand_ins) == 1 else "are"
        notes.append(
            f"{names} {verb} an offline stand-in for a scorer: a list of offensive words, so that an audit "
            "runs without a model. Its scores show that the audit works; they do not measure how toxic a text is."
        )
    if real:
        notes.append(f"Headlines and figures are of the scores of {reading.scorers[0]}.")
    return notes


def _planted(inputs: ReportInputs) -> list[str]:
    models = [one.id for one in inputs.lvlms if one.planted]
    notes = []
    if models:
        verb, who = ("was", "a planted model") if len(models) == 1 else ("were", "planted models")
        notes.append(
            f"{listed(models)} {verb} trained to say known words of each group at known rates ({who}): a bias that is "
            "found in what is said shows that the auditor works, and says nothing about any group of people."
        )
    if inputs.planted:
        notes.append(f"The pictures of {listed(inputs.planted)} are drawn by a program, and show nobody.")
    return notes


def _beneath(inputs: ReportInputs) -> list[str]:
    return [
        f"{one.id} is the language model beneath {listed(one.twin_of)}: it sees no image and is told in words who is "
        "pictured."
        for one in inputs.lvlms
        if one.twin_of
    ]


def _failed(inputs: ReportInputs) -> list[str]:
    notes = []
    for one in inputs.lvlms:
        failed = one.checks.filter(~one.checks["passed"])["check"].to_list()
        if failed:
            notes.append(
                f"{one.id}: {len(failed)} of {one.checks.height} checks failed: {', '.join(failed)}."
            )
    return notes
