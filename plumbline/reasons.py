"""Why a number is undefined, or what to know about it: codes with parameters, put into words once, at the end.

What computes gives a `Reason`; what decides asks for its `code` and `params`; only what a person reads is in words
(`str(reason)`, `in_words`). A new wording in `WORDS` changes no number and no finding.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS: dict[str, str] = {
    # sizes of groups
    "empty_group": "empty group",
    "small_group": "small group: {n} images, fewer than {min_group}",
    "small_groups": "fewer than {min_group} images in {groups}",
    "empty_groups": "{empty} of {groups} groups empty, left out",
    # logit adjustments
    "leaking": "leaking: test labels had a say in these factors",
    "constant_test_images": "no interval: the test images do not vary",
    "one_trial": "one trial has no spread",
    "halved_classes": "{smaller} of {classes} classes have fewer than 2N images and gave half",
    # rankings
    "absent_from_top": "no image of the group among the {k} best",
    "reaches_no_preference": "interval reaches the value without preference: no significant difference",
    "one_cluster_of_images": "no interval: all images are of one set",
    "too_many_to_permute": "not tested: too many images in sets to shuffle",
    "random_rankings": "random rankings of these groups: not an estimate of the model",
    # associations, markedness, valence correlation
    "constant_cosines": "the cosines do not vary",
    "one_unit_in_group": "no interval: one image or set in a group",
    "constant_columns": "{constant} of {columns} columns do not vary: no effect size",
    "empty_set": "empty set",
    "constant_association": "the association does not vary: no effect size",
    "constant_valence": "one valence does not vary",
    "no_correlation_interval": "no interval: too few images, or |r| is 1",
    # text space
    "no_pair_of_words": "too few words to form a pair",
    "too_few_words": "no interval: too few words to leave one out",
    "constant_words": "the words do not vary",
    "constant_word_cosines": "no test: the cosines do not vary",
    "pairs_share_words": "p takes pairs that share a word for independent",
    "too_many_word_partitions": "no test: too many ways to deal the words",
    # confounds
    "empty_level": "no image at this level",
    "single_unit": "no interval: a single {unit}",
    "one_level": "a line needs two levels, and there is one",
    "no_level": "a line needs two levels, and there are none",
    "constant_outcome": "the outcome does not vary",
    "no_error_units": "no error: {units} only",
    "no_error": "no error",
    "no_interval": "no interval",
    "few_images": "fewer than {min_group} images",
    "independent_words": "interval takes the {words} words of an image for independent",
    "independent_words_and_images": "interval takes the {words} words of an image and the images of a set for "
    "independent",
    "independent_pairs": "interval takes pairs of images for independent",
    "line_through_means": "a line through {means} means",
    "no_pair_of_images": "no two images differ in this attribute alone",
    "no_pair_of_either": "no two images differ in one of the attributes alone",
    "too_few_changes": "no interval: fewer than two independent changes",
    "untested_changes": "no test: fewer than two independent changes, or none that varies",
    # robustness
    "no_images": "no images",
    "too_few_differing_images": "no interval: fewer than two independent images that differ",
    "constant_difference": "no interval: the difference is the same for every image",
    "reaches_zero": "interval reaches 0: no significant difference between {compared}",
    "too_few_groups": "fewer than two groups have images",
    "too_few_images": "fewer than two images",
    "one_pair_of_images": "one pair: no spread, no interval",
    "furthest_apart": "furthest apart: {first} and {second}",
    "empty_bin": "no image in this bin",
    "no_elbow": "no elbow: no bin in which half of the images are harmed",
    "maximum_bin": "in {bin}",
    "too_few_checkpoints": "an order needs three checkpoints, there are {n}",
    "tied_checkpoints": "all checkpoints tie under a template",
    "same_order": "no interval: the orders are the same",
    "few_checkpoints": "no interval: {n} checkpoints",
    # Trident
    "rate_undefined": "rate undefined",
    "equal_rates": "all rates of the encoder are equal",
    "no_true_label_in_class": "no image of the class has a true label",
    "no_true_label_of_automatic": "one of the automatic labels has no image of known truth in the class",
    "labels_like_chance": "automatic labels can hardly be told from chance: {wrong} of {known} wrong",
    "groups_not_corrected": "{undefined} of {groups} groups cannot be corrected, left out",
    "clipped": "clipped to 0 .. 1 from {raw:.3f}",
    "errors_go_with_answers": "no interval: it would lie outside, so the labeller's errors go with the model's answer",
    "assumed_label_error": "if up to {error:.0%} of the automatic labels are wrong (assumed: no image has its own "
    "gender)",
    "measured_label_error": "if up to {error:.0%} of the automatic labels are wrong (upper end of {wrong} of {known} "
    "in other classes)",
    "images_as_independent": "interval too narrow: {images} images of {clusters} sets counted as independent",
    # equal opportunity
    "classes_left_out": "{left_out} of {classes} classes seen in fewer than two groups, left out",
    "under_two_groups_with_images": "fewer than two groups have images",
    "small_cells": "{small} of {cells} cells with fewer than {min_group} images",
    # outcomes
    "undefined_pairs": "{undefined} of {pairs} pairs undefined: no event in one group of the pair",
    "event_never_happens": "the event never happens",
    "below_four_fifths": "below four fifths",
    # generated texts: sets, pairs and groups of answers
    "incomplete_sets": "{left_out} of {sets} sets × seeds left out as incomplete",
    "no_complete_set": "undefined: no set is complete",
    "none_above_p90": "undefined: no set lies above the 90th percentile",
    "at_p90": "no set lies above the 90th percentile: of the {at} of {sets} sets × seeds at it",
    "ties_at_maximum": "{tied} of {sets} sets × seeds have several groups at the maximum, which share it",
    "sets_of_other_groups": "not tested: sets differ in their groups",
    "no_occupation_with_sets": "undefined: no occupation has {min_sets} sets",
    "without_counterpart": "{left_out} of {pairs} {what} left out without a counterpart",
    "groups_share_sets": "groups share sets: interval and p count them as independent",
    "groups_without_number": "not compared, without any such number: {groups}",
    "half_of_answers": "fewer than half of the answers left of {groups}",
    "wilson_over_sets": "interval by Wilson over {sets} sets: no answer differs",
    "occupations_left_out": "{left_out} of {occupations} occupations left out: a group has no answers",
    "no_whole_occupation": "undefined: no occupation with every group",
    "wordless_answers": "{wordless} of {answers} answers without words left out",
    "no_dictionaries": "no dictionaries are configured",
    "unreadable_prompt": "undefined: {share:.0%} of the answers to this prompt could not be read",
    "unreadable_answers": "{unreadable} of {answers} answers left out ({counts})",
    # generated texts: words
    "never_said_of_others": "never said of the other groups: counted there as one half",
    "no_words_of_group": "undefined: no words of this group",
    "no_words_of_others": "undefined: no words of any other group",
    "one_block": "no interval: said in one scene, or one block of scenes, only",
    "words_too_rare": "no word was said often enough: language.min_count is {min_count}",
    "prompts_not_asked": "not asked: {prompts}",
    "words_beyond_table": "the table lists the {listed} most associated",
    "no_judge": "no judge is configured",
    "words_not_judged": "{left_out} of {words} associated words were not judged",
    # generated texts: annotations
    "no_labelled_texts": "undefined: no text was labelled by every annotator",
    "one_annotator": "undefined: agreement needs two annotators",
    "one_label": "undefined: every label is the same, so that agreement by chance is complete",
    "none_judged": "undefined: the judge names none of the annotated items",
    "none_true": "undefined: the majority names none of the annotated items",
    "even_annotators": "undefined: a majority needs an odd number of annotators",
    "not_all_labels": "{left_out} of {items} {what} left out: not labelled by all {annotators} annotators",
    "few_labels": "few labels of {annotators}{more}",
    "own_texts": "of this model's texts only: {texts} of the {sheet} on the sheet",
    "own_words": "of words that this model says of the group only: {words} of the {sheet} on the sheet",
    "texts_without_score": "{left_out} of {items} texts left out: without a score",
    "foreign_texts": "{left_out} of {items} texts left out: of no answer of this audit ({labels} labels)",
    "foreign_words": "{left_out} of {items} words left out: of no group of this audit ({labels} labels)",
    # intervals
    "estimate_undefined": "estimate undefined",
    "undefined_resamples": "undefined in {undefined} of {resamples} resamples",
    "percentile_interval": "percentile interval: every resample lies on one side of the estimate",
    "reaches_parity": "interval reaches parity: no significant difference",
    "reaches_parity_of_side": "interval reaches to parity of {side}: its groups may be alike",
    "undefined_for_side": "undefined for {side}",
    "undefined_pairs_of_side": "{side}: {undefined} of {pairs} pairs undefined: no event in one group of the pair",
    # clusters
    "few_clusters": "interval from only {clusters} sets",
    "few_beyond_quantile": "interval of a quantile with only about {beyond} of {clusters} sets beyond it",
    "no_values": "undefined: no values",
    "one_cluster": "no interval: only one set",
    "no_interval_group_in_one_cluster": "no interval: a group is in one set only",
    "under_two_groups": "undefined: fewer than two groups have values",
    "mean_not_positive": "undefined: a group's mean is not above 0",
    "biased_upwards": "biased upwards: {bias:.2g} on average if groups did not differ",
    # correlations
    "constant_side": "undefined: one side does not vary",
    "few_units": "undefined: {units} units, at least {least} are needed",
    "no_interval_perfect": "no interval: the sides agree exactly",
    "no_interval_three_units": "no interval: only three units",
    "no_interval_few_blocks": "no interval: too few sets, or a block decides",
    # what two audits say of one number
    "not_in_old": "not in the old one",
    "not_in_new": "not in the new one",
    "independent_intervals": "interval from both intervals, as if the sides were independent",
    "other_prompts": "its prompts are others than before",
}
"""Code -> its words, as a format string over the parameters; lists are joined by commas."""

NO_INTERVAL: dict[str, str] = {
    "no_interval_undefined": "undefined in {undefined} of {resamples} resamples",
    "no_interval_few_resamples": "fewer than two resamples",
    "constant_resamples": "the resamples do not vary",
}
"""Code -> why a bootstrap gives no interval, which findings say in a sentence of their own."""
WORDS |= {code: f"no interval: {why}" for code, why in NO_INTERVAL.items()}


@dataclass(frozen=True)
class Reason:
    """One reason: a code of `WORDS`, and what its words are filled with.

    Attributes
    ----------
    code : str
    params : mapping
        Name -> text, number, bool, or a list of these.
    """

    code: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return WORDS[self.code].format(
            **{name: ", ".join(map(str, v)) if isinstance(v, list) else v for name, v in self.params.items()}
        )


Reasons = tuple[Reason, ...]
"""The reasons of one number, in the order in which they are told; empty where there is nothing to say."""


def reason(code: str, **params: Any) -> Reason:
    """Return a reason; a code without words is a KeyError."""
    if code not in WORDS:
        raise KeyError(code)
    return Reason(code, params)


def joined(*reasons: Reason | Reasons | None) -> Reasons:
    """Return all reasons that apply, in order: single ones and tuples of them, None for one that does not apply."""
    found: list[Reason] = []
    for one in reasons:
        if isinstance(one, Reason):
            found.append(one)
        else:
            found += one or ()
    return tuple(found)


def in_words(reasons: Iterable[Reason]) -> str | None:
    """Return the reasons as a person reads them, apart by semicolons; None where there are none."""
    return "; ".join(map(str, reasons)) or None


def encode(reasons: Iterable[Reason]) -> str | None:
    """Return reasons as JSON, for the column `reason_codes` of a table; None where there are none."""
    pairs = [[one.code, dict(one.params)] for one in reasons]
    return json.dumps(pairs, ensure_ascii=False, default=lambda number: number.item()) if pairs else None


def decode(codes: str | None) -> Reasons:
    """Return the reasons of a cell of the column `reason_codes`."""
    return tuple(Reason(code, params) for code, params in json.loads(codes)) if codes else ()


def find(codes: str | None, code: str) -> Reason | None:
    """Return the first reason with a code in a cell of the column `reason_codes`, or None."""
    return next((one for one in decode(codes) if one.code == code), None)


def why_no_interval(codes: str | None) -> str | None:
    """Return why a bootstrap gives no interval, in words, from a cell of the column `reason_codes`."""
    missing = next((each for each in decode(codes) if each.code in NO_INTERVAL), None)
    return None if missing is None else NO_INTERVAL[missing.code].format(**missing.params)


# --- Reasons of the sizes of groups.

MIN_GROUP = 30
"""Images of a group below which its numbers are called those of a small group."""


def group_size_reason(n: int, min_group: int = MIN_GROUP) -> Reason | None:
    """Return the reason that a group is empty or small, if so."""
    if n == 0:
        return reason("empty_group")
    return reason("small_group", n=n, min_group=min_group) if n < min_group else None


def small_groups_reason(names: Sequence[str], sizes: Sequence[int], min_group: int) -> Reason | None:
    """Return the reason that groups have fewer images than `min_group`, if so."""
    small = [name for name, size in zip(names, sizes) if size < min_group]
    return reason("small_groups", min_group=min_group, groups=small) if small else None


def empty_groups_reason(totals: NDArray[np.int64]) -> Reason | None:
    """Return the reason that groups without images are left out, if so."""
    empty = int((totals == 0).sum())
    return reason("empty_groups", empty=empty, groups=totals.size) if empty else None
