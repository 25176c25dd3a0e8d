"""Generated texts in words: what prompts, instructions, scored attributes and groups are called, and their order."""

from __future__ import annotations

import polars as pl

from plumbline.catalog.prompts import instruction_ids, prompt_ids
from plumbline.report.inputs import ReportInputs
from plumbline.report.numbers import count
from plumbline.report.reading import Reading
from plumbline.report.rows import in_order, where
from plumbline.report.vocabulary import attribute_title, group_title

SUITE = "generation"
HEADLINE_PROMPT = "characteristics"
"""What is shown first where there is room for one prompt: every design of the paper asks it."""
ATTRIBUTES = ("race_gender", "physical_gender", "physical_race")
MAX_TITLES = {
    "max_toxicity": "MaxToxicity",
    "max_insult": "MaxInsult",
    "max_identity_attack": "MaxIdentityAttack",
    "max_flirtation": "MaxFlirtation",
}
STATISTICS = {"mean": "mean", "p90": "90th percentile"}
STAND_IN = "an offline stand-in"
_PLURALS = {"man": "men", "woman": "women"}


def prompt_title(prompt: str | None) -> str:
    """Return a prompt as it stands above a panel."""
    return (prompt or "–").replace("_", " ")


def scored_title(scored: str | None) -> str:
    """Return a scored attribute in words."""
    return (scored or "–").replace("_", " ")


def people(group: str) -> str:
    """Return a group as people: `Black_woman` is `Black women`, `obese_Latino` is `obese Latino people`."""
    *first, last = group_title(group).split(" ")
    return " ".join([*first, _PLURALS[last]]) if last in _PLURALS else f"{group_title(group)} people"


def scorer_words(scorer: str | None, reading: Reading) -> str:
    """Return who scored, said plainly where it only stands in for a scorer."""
    return f"{scorer}, {STAND_IN}" if scorer in reading.stand_ins else str(scorer)


def generated(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows about generated texts."""
    return where(table, suite=SUITE, condition="before")


def plain(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows about answers to prompts as they are, without an instruction."""
    return where(generated(table), instruction=None)


def headline_scorer(table: pl.DataFrame, reading: Reading) -> str | None:
    """Return the scorer of the headlines: the first of the audit file that the table has, else the first by name."""
    present = in_order(table["scorer"], reading.scorers)
    return present[0] if present else None


def of_headline_scorer(table: pl.DataFrame, reading: Reading) -> pl.DataFrame:
    """Return the rows of the scorer of the headlines, and those that need no scorer."""
    scorer = headline_scorer(table, reading)
    return table.filter(pl.col("scorer").is_null() | (pl.col("scorer") == pl.lit(scorer, pl.String)))


def models_in(table: pl.DataFrame, inputs: ReportInputs) -> list[str]:
    """Return the models of a table in the order of the report."""
    return in_order(table["model"], tuple(one.id for one in inputs.lvlms))


def attributes_in(table: pl.DataFrame) -> list[str]:
    """Return the attributes of a table, the subsets of the paper first."""
    return in_order(table["attribute"], ATTRIBUTES)


def prompts_in(table: pl.DataFrame) -> list[str]:
    """Return the prompts of a table in the order of the paper, the main ones first."""
    return in_order(table["prompt"], prompt_ids("all"))


def instructions_in(table: pl.DataFrame) -> list[str]:
    """Return the instructions of a table, M1 first."""
    return in_order(table["instruction"], tuple(instruction_ids()))


def spoken(table: pl.DataFrame) -> pl.DataFrame:
    """Return the rows about prompts that ask for words: an answer that is a number is neither toxic nor kind.

    Where only numbers were asked for, these are all there is to show.
    """
    rows = table.filter(~pl.col("prompt").is_in(list(prompt_ids("numeric"))))
    return rows if rows.height else table


def headline_prompt(table: pl.DataFrame) -> str | None:
    """Return the prompt that is shown first, None where the table has none."""
    prompts = prompts_in(table)
    return HEADLINE_PROMPT if HEADLINE_PROMPT in prompts else next(iter(prompts), None)


def of_subset(dataset: str, attribute: str) -> str:
    """Return a dataset and what its people differ in, for a heading."""
    return f"{dataset}: {attribute_title(attribute)}"


def left_out(number: int, what: str, where_else: str) -> str:
    """Say what a short table does not show; empty where it shows all."""
    return f"{count(number)} more {what} are in {where_else}." if number > 0 else ""
