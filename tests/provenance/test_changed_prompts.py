import pytest

from plumbline.provenance.diff import StoredPrompts, changed_prompts

OTHERS = ("a warm person", "a cold person")


def stored(*texts: str, known: bool = True) -> StoredPrompts:
    return StoredPrompts(texts if known else None, (*texts, *OTHERS))


def told(old: StoredPrompts, new: StoredPrompts, *, alone: bool = True) -> str:
    return changed_prompts("crime", old, new, alone=alone)


def test_what_was_added_and_removed_is_named():
    said = told(stored("thief", "criminal"), stored("criminal", "burglar", "robber"))
    assert said == "the prompts of `crime` changed: +2 (burglar, robber), −1 (thief)"


def test_many_are_counted_and_three_named():
    assert told(stored(), stored(*"abcde")).endswith("+5 (a, b, c and 2 more)")


def test_the_same_texts_in_another_role_are_said_to_be_the_same():
    said = told(stored("thief", "criminal"), stored("criminal", "thief"))
    assert "the same texts, in another order or counted as something else" in said


@pytest.mark.parametrize("known", [(False, True), (True, False), (False, False)])
def test_where_it_was_not_stored_which_prompts_are_whose_the_only_changed_suite_has_them(known):
    said = told(stored("thief", known=known[0]), stored("burglar", known=known[1]))
    assert said == "the prompts of `crime` changed: +1 (burglar), −1 (thief)"


def test_a_text_that_may_be_of_another_suite_is_not_ascribed():
    old, new = stored("thief", known=False), stored("burglar")
    assert told(old, new, alone=False) == "the prompts of `crime` changed: +1 (burglar)"
    both = stored("thief", known=False), stored("burglar", known=False)
    assert told(*both, alone=False) == "the prompts of `crime` changed"
