"""How each metric of images is computed from responses (n, g + 1), groups (n,) and g, so that one test exercises all.

The last candidate is the event, the probe, or the score that is compared; the others are the groups' own classes.
"""

import numpy as np

from plumbline.catalog.schema import metric_frame
from plumbline.metrics import (
    compare_changes,
    confound_fit,
    directional_bias,
    directional_bias_gap,
    equal_opportunity_gap,
    harm_by_bias_size,
    harm_rate,
    impact_ratio,
    intra_set_cosine,
    level_means,
    markedness,
    markedness_gap,
    max_skew,
    max_skew_at_k,
    mean_change,
    ndkl,
    normalise_probe_rates,
    outcome_proportions,
    parity_difference,
    probe_rate_gap,
    rank_agreement,
    sc_weat,
    skew_at_k,
    template_shift,
    trident_scores,
    valence_correlation,
    valence_geometry,
    weat,
)
from plumbline.metrics.zero_shot import class_ranks, wording_agreement, zero_shot_accuracy, zero_shot_recognition


def proportions(responses, groups, g):
    return outcome_proportions(responses.argmax(axis=1) == g, groups.tolist(), levels=range(g))


def on_counts(value):
    """Return the measure of a metric on event counts (g,) and group totals (g,)."""

    def measure(responses, groups, g):
        of_groups = proportions(responses, groups, g)
        return np.asarray(value(of_groups.count, of_groups.proportions.n))

    return measure


def on_trident(field):
    return lambda responses, groups, g: np.asarray(getattr(trident_scores(responses, groups, n_classes=g), field).value)


def normalised(responses, groups, g):
    rates = trident_scores(responses, groups, n_classes=g).probe_rate.value
    common = {
        "model": "m", "dataset": "d", "suite": "trident", "condition": "before", "statistic": "estimate",
        "metric": "probe_rate", "definition": "logit",
    }  # fmt: skip
    table = metric_frame([common | {"value": rate} for rate in rates.tolist()])
    return normalise_probe_rates(table)["value"].to_numpy()[:g]


def against_others(value):
    """Return the measure of a metric of one group against the others; sums depend on their order in the last bits."""
    return lambda responses, groups, g: np.round([value(responses, groups == i, i) for i in range(g)], 12)


def of_sc_weat(field):
    def value(responses, inside, _):
        return getattr(sc_weat(responses[:, -1:], inside, permutations=1, seed=np.random.default_rng(0)), field)[0]

    return against_others(value)


def of_weat(responses, inside, _):
    # Embeddings of two dimensions, the score and a constant; the attributes are their directions.
    embeddings = np.column_stack([responses[:, -1], np.ones(len(responses))])
    rng = np.random.default_rng(0)
    return weat(embeddings[inside], embeddings[~inside], [[1, 0]], [[0, 1]], permutations=1, seed=rng).effect_size


def of_markedness(responses, inside, i):
    return markedness(responses[inside, -1], responses[inside, i]).value


def of_markedness_gap(responses, groups, g):
    # The same mark for every group, so that groups that are answered alike have no gap.
    mark = responses[:, :-1].max(axis=1)
    return np.asarray(
        markedness_gap([markedness(responses[groups == i, -1], mark[groups == i]).value for i in range(g)])
    )


def of_correlation(responses, inside, i):
    return valence_correlation(responses[inside, i], responses[inside, -1]).value


def own_and_last(responses, groups, g):
    """Return the response of each image to its own class, and to the last candidate."""
    return responses[np.arange(len(groups)), groups], responses[:, g]


def of_line(read):
    """Return the measure of a number of the line of the last response on the response to the own class."""
    return lambda *sample: np.asarray(read(confound_fit(*own_and_last(*sample))))


def of_change(*sample):
    own, last = own_and_last(*sample)
    return np.asarray(mean_change(np.abs(last - own)).value)


def of_comparison(*sample):
    own, last = own_and_last(*sample)
    return np.asarray(compare_changes(np.abs(last), np.abs(own)).value)


def of_bias(responses, groups, g):
    best = responses.max(axis=1, keepdims=True)
    return np.array(
        [float(directional_bias(responses[groups == i, -1:], best[groups == i]).mean.value) for i in range(g)]
    )


def of_bias_gap(responses, groups, g):
    return np.array(directional_bias_gap(responses[:, -1] - responses.max(axis=1), groups.tolist()).value)


def of_template_shift(responses, groups, g):
    # Biases of the score against the best response, and of the best against half the score.
    best, score = responses.max(axis=1, keepdims=True), responses[:, -1:]
    bias = directional_bias(np.stack([score, best], axis=1), np.stack([best, score / 2], axis=1))
    return np.array(template_shift(bias.delta).value)


def of_ranks(responses, groups, g):
    """Return the agreement over the groups, taken for checkpoints, of their mean score and their mean best."""
    seen = [i for i in range(g) if (groups == i).any()]
    score = [responses[groups == i, -1].mean() for i in seen]
    best = [responses[groups == i].max(axis=1).mean() for i in seen]
    return np.array(rank_agreement(score, best).value)


def of_accuracy(responses, groups, g):
    guessed, labelled = (codes.astype(str) for codes in (responses[:, :g].argmax(axis=1), groups))
    return np.array(zero_shot_accuracy(guessed, labelled).value)


def of_recognition(field):
    """Take the groups for the classes."""

    def measure(responses, groups, g):
        ranks = class_ranks(responses[:, :g], groups)[groups >= 0]
        return np.array(getattr(zero_shot_recognition(ranks, groups[groups >= 0], number=g), field).value)

    return measure


def of_agreement(responses, groups, g):
    """Take the classes with the last candidate among them for another wording."""
    return np.array(wording_agreement(np.array([responses[:, :g].argmax(axis=1), responses.argmax(axis=1)])).value)


def on_bias_size(field, place=None):
    def measure(responses, groups, g):
        # The bias grows with the score, and so does the chance that the score is the best match.
        value = getattr(harm_by_bias_size(responses[:, -1] / 5, responses.argmax(axis=1) == g), field)
        return np.array(value if place is None else value.value[place])

    return measure


def of_own(responses, groups, g):
    """Return the share of each group above a threshold, as a function of an audit file's own might."""
    return np.array([(responses[groups == i, -1] > 0.5).mean() if (groups == i).any() else np.nan for i in range(g)])


def of_own_gap(responses, groups, g):
    values = of_own(responses, groups, g)
    return np.nanmax(values) - np.nanmin(values)


def of_cosine(responses, groups, g):
    embeddings = np.stack([responses[:, -1], responses.max(axis=1), np.ones(len(responses))], axis=1)
    return np.array(intra_set_cosine(embeddings).mean.value)


def ranked(responses, groups):
    """Return k, and ids that belong to the images themselves, so that they move with the rows."""
    ids = np.unique(np.column_stack([responses, groups]), axis=0, return_inverse=True)[1].ravel()
    # Half of the images of the contract test, and a multiple of its groups.
    return {"k": min(120, len(groups) // 2), "ids": ids}


def of_skews(responses, groups, g):
    skews = skew_at_k(responses[:, -1], groups, **ranked(responses, groups))
    values = np.full(g, np.nan)
    values[list(skews.groups)] = skews.value
    return values


def of_largest_skew(responses, groups, g):
    return np.asarray(max_skew_at_k(responses[:, -1], groups, **ranked(responses, groups)).value)


def of_ndkl(responses, groups, g):
    return np.asarray(ndkl(responses[:, -1], groups, ids=ranked(responses, groups)["ids"])[0])


def of_words(read):
    """Take each image for a word in two dimensions, of positive valence where the last response is the higher."""

    def measure(*sample):
        own, last = own_and_last(*sample)
        # In an order of their own, since sums of cosines in another order differ in the last bits.
        words = np.stack([own, last], axis=1)[np.lexsort((last, own))]
        # No word lies exactly at the centre, where a cosine is undefined.
        words[(words == 0).all(axis=1)] = [0.0, -1.0]
        valences = np.where(words[:, 1] > words[:, 0], "positive", "negative").tolist()
        return np.asarray(read(valence_geometry(words, dimensions=["agency"] * len(words), valences=valences)))

    return measure


MEASURES = {
    "outcome_proportion": lambda *sample: proportions(*sample).proportions.value,
    "max_skew": on_counts(lambda x, n: max_skew(x, n).value),
    "harm_rate": on_counts(lambda x, n: harm_rate(x, n).value),
    "parity_difference": on_counts(lambda x, n: parity_difference(x, n).value),
    "own_metric": of_own,
    "own_metric_gap": of_own_gap,
    "impact_ratio": on_counts(lambda x, n: impact_ratio(x, n).value),
    "accuracy": on_trident("accuracy"),
    "class_accuracy": on_trident("class_accuracy"),
    "macro_accuracy": on_trident("macro_accuracy"),
    "probe_rate": on_trident("probe_rate"),
    "probe_rate_normalised": normalised,
    "probe_rate_gap": on_counts(lambda x, n: probe_rate_gap(np.stack([n - x, x], axis=-1))),
    "true_positive_rate": on_counts(lambda x, n: equal_opportunity_gap(x[None], n[None]).rate[0]),
    "equal_opportunity_gap": on_counts(lambda x, n: equal_opportunity_gap(x[None], n[None]).value),
    "sc_weat_effect": of_sc_weat("effect_size"),
    "sc_weat_statistic": of_sc_weat("statistic"),
    "weat_effect": against_others(of_weat),
    "markedness": against_others(of_markedness),
    "markedness_gap": of_markedness_gap,
    "valence_correlation": against_others(of_correlation),
    "directional_bias": of_bias,
    "directional_bias_gap": of_bias_gap,
    "template_shift": of_template_shift,
    "template_rank_correlation": of_ranks,
    "harm_by_bias_size": on_bias_size("p_harm", 2),
    "bias_size_bin_share": on_bias_size("bin_share", 0),
    "max_harm_by_bias_size": on_bias_size("maximum"),
    "bias_size_elbow": on_bias_size("elbow"),
    "intra_set_cosine": of_cosine,
    "skew_at_k": of_skews,
    "max_skew_at_k": of_largest_skew,
    "ndkl": of_ndkl,
    "confound_slope": of_line(lambda fit: fit.slope.value),
    "confound_intercept": of_line(lambda fit: fit.intercept.value),
    "confound_r_squared": of_line(lambda fit: fit.r_squared.value),
    "perception_by_level": lambda responses, groups, g: level_means(groups, responses[:, g], levels=range(g)).value,
    "attribute_change": of_change,
    "confound_vs_protected": of_comparison,
    "zero_shot_accuracy": of_accuracy,
    "wording_agreement": of_agreement,
    "utility_accuracy": of_recognition("top_1"),
    "mean_per_class_recall": of_recognition("mean_per_class"),
    "valence_cosine": of_words(lambda found: found.dimensions[0].positive.value),
    "valence_gap": of_words(lambda found: found.dimensions[0].positive_gap.value),
    "text_axis_share": of_words(lambda found: float(found.shares[0])),
}
