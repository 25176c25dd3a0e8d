"""What is thought before an answer is kept apart from it."""

import pytest

from plumbline.generators.thinking import Thoughts, switch_in, text_apart


class Characters:
    """A tokenizer of characters; `<think>` and its end are one token each."""

    names = ("<think>", "</think>")

    def decode(self, tokens, *, skip_special_tokens, clean_up_tokenization_spaces):
        return "".join(self.names[token - 1000] if token >= 1000 else chr(token) for token in tokens)


def tokens(*parts):
    return [token for part in parts for token in ([part] if isinstance(part, int) else map(ord, part))]


@pytest.mark.parametrize(
    ("prompt", "said", "thinking", "answer"),
    [
        ([], ["A chef."], "", "A chef."),
        ([], [1000, "hm, ", 1001, "A chef."], "hm,", "A chef."),
        ([], ["[THINK]hm[/THINK]A chef."], "hm", "A chef."),
        ([1000], ["hm", 1001, " A chef."], "hm", " A chef."),
        ([1000], ["hm and no end"], "hm and no end", ""),
        ([], [1000, "no end"], "no end", ""),
        ([1000, 1001], ["A chef."], "", "A chef."),
        ([], [1000, "a", 1001, "b", 1000, "c", 1001, "A chef."], "a</think>b<think>c", "A chef."),
    ],
)
def test_thinking_ends_with_its_last_mark(prompt, said, thinking, answer):
    found = Thoughts(Characters(), tokens(*prompt)).apart(tokens(*said))
    assert found.text == thinking
    assert found.answer == tokens(answer)


@pytest.mark.parametrize(
    ("template", "switch"),
    [
        ("{% if enable_thinking is defined and enable_thinking is false %}a{% endif %}", "enable_thinking"),
        ("{%- if not thinking is defined %}{% set thinking = false %}{% endif %}{{ thinking }}", "thinking"),
        ("{% generation %}{{ enable_thinking }}{% endgeneration %}", "enable_thinking"),
        ("{{ message.thinking }}{{ message . thinking }} enable_thinking {# thinking #}{{ 'thinking' }}", None),
        ("{{ messages }}", None),
    ],
)
def test_a_switch_is_a_variable_of_the_template(template, switch):
    assert switch_in(template) == switch


def test_texts_of_others_are_split_by_the_same_marks():
    assert text_apart("<think>\nhm\n</think>\n\nA chef.") == ("hm", "A chef.")
    assert text_apart("◁think▷hm◁/think▷A chef.") == ("hm", "A chef.")
    assert text_apart("<think> cut short") == ("cut short", "")
    assert text_apart(" A chef who thinks.") == ("", " A chef who thinks.")
