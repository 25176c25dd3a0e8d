"""Synthetic rows and tables about generated texts, with everything that the report reads of them."""

import itertools
import math

import numpy as np
import polars as pl

from plumbline.catalog.schema import SCORED_ATTRIBUTES, metric_frame
from plumbline.language.max_toxicity import OCCUPATION_SCORES
from plumbline.language.words import WORD_ASSOCIATIONS
from plumbline.reasons import reason
from plumbline.report import AuditSummary, DatasetSummary, ReportInputs
from plumbline.report.inputs import LvlmSummary

RACES = ("Asian", "Black", "Indian", "Latino", "Middle Eastern", "White")
BODIES = ("obese", "old", "skinny", "tattooed", "young")
GROUPS = {
    "race_gender": tuple(f"{r}_{g}" for r in RACES for g in ("man", "woman")),
    "physical_gender": tuple(f"{b}_{g}" for b in BODIES for g in ("man", "woman")),
    "physical_race": tuple(f"{b}_{r}" for b in BODIES for r in RACES),
}
PROMPTS = ("describe", "characteristics", "personality")
MODELS = ("llava", "bakllava")
FACES, PATA = "faces", "scenes"
WORST = {"race_gender": "Black_woman", "physical_gender": "obese_man", "physical_race": "obese_Latino"}
"""The group that every synthetic model but `fair` speaks worst of."""
FAIR = "fair"
OFFLINE, REAL = "offline", "roberta"
HOSTILE = ("<script>alert(1)</script>", "\x1b[31mred", "\u202egnirts", '"><img src=x onerror=alert(2)>', "{{ 7 * 7 }}")


no_dictionaries = reason("no_dictionaries")


def estimate(value, half=0.05, *, p=None, n=200, reason=None, low=None):
    """The columns of an estimate; q is twice p."""
    if value is None or math.isnan(value):
        return {"value": math.nan, "ci_low": math.nan, "ci_high": math.nan, "p": p, "n": n, "reason": reason}
    ends = {"ci_low": max(low, value - half) if low is not None else value - half, "ci_high": value + half}
    return {"value": value, **ends, "p": p, "q": None if p is None else min(1.0, 2 * p), "n": n, "reason": reason}


class Rows:
    """Collects metric rows of one model, dataset and attribute."""

    def __init__(self, model, dataset, attribute, rng):
        self.rows, self.rng, self.model, self.attribute = [], rng, model, attribute
        self.groups = GROUPS[attribute]
        self.base = {
            "model": model, "dataset": dataset, "attribute": attribute, "suite": "generation", "condition": "before",
            "definition": "paper", "statistic": "estimate",
        }  # fmt: skip

    def add(self, metric, numbers, **columns):
        self.rows.append({**self.base, "metric": metric, **numbers, **columns})

    def noise(self, size=0.02):
        return float(self.rng.uniform(-size, size))

    def is_worst(self, group):
        return self.model != FAIR and group == WORST[self.attribute]


def scored_rows(own, prompts, scorers, *, sets=True):
    for prompt, scorer, scored in itertools.product(prompts, scorers, SCORED_ATTRIBUTES):
        common = {"prompt": prompt, "scorer": scorer}
        if sets:
            for definition, statistic in itertools.product(("paper", "without_refusals"), ("mean", "p90")):
                value = (0.15 if statistic == "mean" else 0.4) + own.noise(0.05)
                how = {"definition": definition, "statistic": statistic}
                own.add(f"max_{scored}", estimate(value, low=0.0), **common, **how)
            worst_off(own, common | {"event": scored})
        for group, statistic in itertools.product(own.groups, ("mean", "p90")):
            value = (0.05 if statistic == "mean" else 0.2) + 0.1 * own.is_worst(group) + abs(own.noise())
            own.add(scored, estimate(value, low=0.0), **common, group=group, definition="score", statistic=statistic)
        if len(scorers) > 1 and scorer == scorers[0]:
            for definition in ("pearson", "spearman"):
                pair = {"event": scored, "reference_group": scorers[1], "definition": definition, "statistic": "r"}
                own.add("scorer_agreement", estimate(0.6), **common, **pair)


def worst_off(own, columns):
    even = 1 / len(own.groups)
    rest = (1 - 0.4) / (len(own.groups) - 1) if own.model != FAIR else even
    for group in own.groups:
        worst = own.is_worst(group)
        share = 0.4 if worst else rest
        own.add(
            "max_score_share", estimate(share, 0.06, p=1e-4 if worst else 0.6, n=40, low=0.0), group=group, **columns
        )


def number_rows(own):
    for prompt, (metric, base, step) in {
        "hiring": ("rating", 7.0, 1.5),
        "warmth": ("rating", 7.5, 0.0),
        "salary": ("salary", 52_000.0, 9_000.0),
    }.items():
        unreadable = own.model == "bakllava" and prompt == "salary"
        why = reason("unreadable_prompt", share=0.83) if unreadable else None
        for group in own.groups:
            value = math.nan if unreadable else base - step * own.is_worst(group) + own.noise() * base / 7
            own.add(metric, estimate(value, base / 40, reason=why), group=group, prompt=prompt, statistic="mean")
            own.add("unreadable_rate", estimate(0.83 if unreadable else 0.02), group=group, prompt=prompt)
        own.add("unreadable_rate", estimate(0.83 if unreadable else 0.02, n=2400), prompt=prompt)
        biased = step > 0 and own.model != FAIR
        gap = math.nan if unreadable else max(step * biased, base / 20)
        own.add(
            f"{metric}_gap", estimate(gap, base / 40, p=None if unreadable else 2e-4 if biased else 0.5, reason=why),
            prompt=prompt,
        )  # fmt: skip


def text_rows(own, *, dictionaries):
    for group in own.groups:
        worst = own.is_worst(group)
        common = {"group": group, "prompt": "characteristics"}
        share = 0.1 if worst else 0.2
        for definition in ("paper", "count", "released"):
            how = {"definition": definition, "statistic": "mean"}
            own.add("competence_words", estimate(share if definition == "paper" else 5 * share), **common, **how)
        for metric in ("warmth_words", "coldness_words", "incompetence_words") if dictionaries else ():
            own.add(metric, estimate(0.1, low=0.0), **common, statistic="mean")
        own.add("min_competence_share", estimate(0.5 if worst else 0.05, n=45), **common)
        own.add("refusal_rate", estimate(0.12 if worst else 0.01), **common)
        own.add("response_length", estimate(30.0 if worst else 20.0), **common, statistic="mean")
        own.add("empty_rate", estimate(0.0, low=0.0), **common)
        missing = reason("prompts_not_asked", prompts=["pretend"])
        counted = {"value": 3.0, "n": 400, "reason": missing}
        own.add("associated_words", counted, group=group, definition="pmi", statistic="count")
        own.add("stereotype_words", {"value": 1.0, "n": 3}, group=group, definition="pmi", statistic="count")
    biased = own.model != FAIR
    p = 2e-4 if biased else 0.5
    common = {"prompt": "characteristics"}
    own.add("refusal_rate", estimate(0.02, n=2400), **common)
    own.add("competence_gap", estimate(0.1, p=p), **common)
    own.add("competence_gap", estimate(0.3, p=1e-4), **common, occupation="chef")
    own.add("refusal_rate_gap", estimate(0.11, p=p), **common)
    own.add("response_length_ratio", estimate(1.5, p=p), **common)


def instruction_rows(own, scorers):
    """M1 lowers toxicity, M4 raises flirtation and refusals, the others do nothing."""
    for name, scored, statistic, scorer in itertools.product(
        ("M1", "M2", "M3", "M4", "M5"), SCORED_ATTRIBUTES, ("mean", "p90"), scorers
    ):
        value = {("M1", "toxicity"): -0.2, ("M4", "flirtation"): 0.15}.get((name, scored), own.noise(0.01))
        own.add(
            f"max_{scored}_change", estimate(value, p=1e-4 if abs(value) > 0.1 else 0.6), instruction=name,
            prompt="characteristics", scorer=scorer, statistic=statistic,
        )  # fmt: skip
    for name in ("M1", "M2", "M3", "M4", "M5"):
        more = 0.2 if name == "M4" else 0.0
        common = {"instruction": name, "prompt": "characteristics", "definition": "paired"}
        own.add("refusal_rate_change", estimate(more, p=1e-4 if more else 0.7), **common)
        own.add("response_length_change", estimate(-40 * more, p=1e-4 if more else 0.7), **common, statistic="mean")
        # What a reader must not take for the model's own: refusals under an instruction.
        own.add("refusal_rate_gap", estimate(0.9, p=1e-4), **common | {"definition": "paper"})


def base_llm_rows(own, scorer):
    for statistic in ("mean", "p90"):
        own.add(
            "max_toxicity_minus_base_llm", estimate(0.08, p=1e-4 if own.model != FAIR else 0.5), statistic=statistic,
            scorer=scorer, prompt="characteristics",
        )  # fmt: skip
    if own.attribute == "race_gender":
        for definition, r, n in (("pearson", 0.45, 45), ("pearson_groups", 0.7, 52)):
            common = {"attribute": None, "definition": definition, "scorer": scorer, "prompt": "characteristics"}
            own.add("base_llm_correlation", estimate(r, 0.2, p=0.003, n=n), **common, statistic="r")
            own.add("base_llm_correlation", {"value": 0.003, "n": n}, **common, statistic="p")


def language_table(
    models=MODELS, attributes=("race_gender",), scorers=(OFFLINE,), prompts=PROMPTS, *, pata=False, dictionaries=False
):
    """Return metric rows as an audit of these models has them."""
    rows = []
    for index, (model, attribute) in enumerate(itertools.product(models, attributes)):
        own = Rows(model, FACES, attribute, np.random.default_rng([11, index]))
        scored_rows(own, prompts, scorers)
        number_rows(own)
        text_rows(own, dictionaries=dictionaries)
        instruction_rows(own, scorers)
        base_llm_rows(own, scorers[0])
        if not dictionaries and attribute == attributes[0]:
            nothing = estimate(math.nan, reason=no_dictionaries)
            for metric in ("warmth_words", "coldness_words", "incompetence_words"):
                own.add(metric, nothing, attribute=None, statistic="mean")
        rows += own.rows
        if pata and attribute == "race_gender":
            own = Rows(model, PATA, attribute, np.random.default_rng([12, index]))
            scored_rows(own, ("characteristics",), scorers, sets=False)
            rows += own.rows
    return metric_frame(rows)


def word_table(models=MODELS, attribute="race_gender", *, words=("pleasant", "judge", "rude"), judged=True, q=0.001):
    """Return `word_associations` with `model`: the first word of the worst-off group is a stereotype if judged."""
    rows = []
    for model, group in itertools.product(models, GROUPS[attribute]):
        for place, word in enumerate(words):
            association = 3.0 - 0.4 * place
            rows.append(
                {
                    "model": model,
                    "dataset": FACES,
                    "attribute": attribute,
                    "group": group,
                    "word": word,
                    "association": association,
                    "ci_low": association - 1,
                    "ci_high": association + 1,
                    "p": q / 2,
                    "q": q,
                    "count": 31 - place,
                    "n": 4021,
                    "count_others": 40,
                    "n_others": 44_000,
                    "texts": 29,
                    "stereotype": (place == 0 and group == WORST[attribute]) if judged else None,
                    "reason": None,
                }
            )
    return pl.DataFrame(rows, schema={"model": pl.String, **WORD_ASSOCIATIONS})


def occupation_table(models=MODELS, attribute="race_gender", scorer=OFFLINE):
    """Return `occupation_scores` with `model`."""
    rows = []
    for model, (end, place, name), group in itertools.product(
        models, [(e, p, f"{e} {p}") for e in ("largest", "smallest") for p in (1, 2)], GROUPS[attribute]
    ):
        high = 0.4 if end == "largest" else 0.1
        quantiles = dict(zip(("min", "q05", "q25", "median", "q75", "q95", "max"), np.linspace(0, high, 7)))
        rows.append(
            {"model": model, "dataset": FACES, "attribute": attribute, "prompt": "characteristics", "scorer": scorer,
             "event": "toxicity", "end": end, "place": place, "occupation": name, "spread": high / 4, "group": group,
             **quantiles, "n": 90}
        )  # fmt: skip
    return pl.DataFrame(rows, schema={"model": pl.String, **OCCUPATION_SCORES})


def lvlm(name, scorers, **more):
    """Return the summary of one generative model."""
    about = {
        "address": f"hf-hub:org/{name}@abc", "version": "b" * 64, "rows": 12_345, "device": "cpu",
        "decoding": "max_new_tokens 512, temperature 0.75", "scorers": scorers,
    }  # fmt: skip
    return LvlmSummary(id=name, **about | more)


def language_inputs(models=MODELS, scorers=(OFFLINE,), *, datasets=(FACES,), planted=True, language=None, **more):
    """Return the summaries that go with `language_table`; every model was built on `vicuna`."""
    named = {name: name == OFFLINE for name in scorers}
    return ReportInputs(
        audit=AuditSummary(
            audit_id="0f" * 32, title="What models say", created="2026-11-21", config_path="audit.yaml",
            code_version="0.1.0", seed=1, resamples=1000,
        ),
        datasets=tuple(
            DatasetSummary(
                id=d, reader="socialcounterfactuals", listed=9, accepted=9, images=9, digest="d" * 64, planted=planted
            )
            for d in datasets
        ),
        encoders=(),
        lvlms=tuple(lvlm(name, named, base_llm="vicuna", planted=planted, **more) for name in models),
        language=language or {},
    )  # fmt: skip
