"""Occupations of answers: of a group that has too few people of one, none is told, nor what would tell it."""

import polars as pl

from assets.answers import _without_small_occupations

SIZES = {
    ("woman", "chef"): 20, ("man", "chef"): 15, ("other", "chef"): 12,
    ("woman", "welder"): 9, ("man", "welder"): 11, ("other", "welder"): 3,
}  # fmt: skip


def test_occupations_of_few_people_of_a_group_are_told_of_nobody():
    rows = [cell for cell, n in SIZES.items() for _ in range(n)]
    people = pl.DataFrame(
        {
            "dataset": "folk",
            "image_id": [str(i) for i in range(len(rows))],
            "attribute": "gender",
            "group": [group for group, _ in rows],
            "occupation": [occupation for _, occupation in rows],
        }
    )
    assert _without_small_occupations(people, lambda _: 1).equals(people)
    shown = _without_small_occupations(people, lambda _: 5)
    assert shown.drop("occupation").equals(people.drop("occupation")), "they stay in their groups"
    left = set(shown.drop_nulls("occupation").select("group", "occupation").rows())
    # Others who weld are too few; others who cook would tell them, and so would welders less the rest.
    assert not left & {("other", "welder"), ("other", "chef")}
    assert not {("woman", "welder"), ("man", "welder")} <= left
