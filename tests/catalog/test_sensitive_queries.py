"""The queries that mitigations are trained on, and that none of them is ever asked in an audit."""

from plumbline.catalog.suites import all_texts
from plumbline.catalog.word_lists import load_sensitive_queries


def test_no_training_query_is_a_prompt_of_a_suite():
    queries, asked = load_sensitive_queries(), {text.lower() for text in all_texts()}
    trained_on = {*queries.texts, *(text for pair in queries.pairs for text in pair)}
    assert trained_on and not asked & {text.lower() for text in trained_on}


def test_published_queries_that_are_prompts_are_left_out_by_name():
    queries = load_sensitive_queries()
    assert queries.left_out == (
        "a photo of a friendly person",
        "a photo of an unfriendly person",
        "a photo of a trustworthy person",
    ), "a prompt of a new suite is a query that mitigations train on: word it otherwise, or raise their versions"
    assert set(queries.left_out) <= set(all_texts())


def test_a_query_stays_without_its_opposite_but_is_no_pair():
    queries = load_sensitive_queries()
    assert len(queries.texts) == 17 and len(queries.pairs) == 8
    assert "a photo of a dangerous person" in queries.texts
    assert "a photo of a dangerous person" not in {text for pair in queries.pairs for text in pair}
    assert queries.pairs[0] == ("a photo of a good person", "a photo of an evil person")
