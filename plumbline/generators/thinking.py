"""What a reasoning model writes before its answer, kept apart: it is counted and shown, and never scored."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, NamedTuple

MARKS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"), ("<|channel>thought", "<channel|>"), ("◁think▷", "◁/think▷"))
"""What stands before and after the thinking of Qwen and most others, Mistral, Gemma 4 and Kimi."""


SWITCHES = ("enable_thinking", "thinking")
"""What chat templates call the switch: Qwen, Gemma 4, GLM and most others, then DeepSeek, Kimi and Granite."""


def switch_in(template: str) -> str | None:
    """Return what a chat template calls its switch for thinking; None where it reads none."""
    import jinja2

    # Tokens of Jinja alone: transformers' own tags are no matter, and `message.thinking` is no switch.
    tokens = [(kind, value) for _, kind, value in jinja2.Environment().lex(template) if kind != "whitespace"]  # noqa: S701
    before = [("", ""), *tokens]
    read = {value for (_, last), (kind, value) in zip(before, tokens, strict=False) if kind == "name" and last != "."}
    return next((name for name in SWITCHES if name in read), None)


class Apart(NamedTuple):
    """A text in two: what was thought, without its marks, and the answer."""

    thinking: str
    answer: str


def text_apart(text: str) -> Apart:
    """Return thinking and answer of a text; all of it is thinking where that begins and does not end."""
    for start, end in MARKS:
        if end in text:
            thinking, _, answer = text.rpartition(end)
        elif text.lstrip().startswith(start):
            thinking, answer = text, ""
        else:
            continue
        return Apart(thinking.strip().removeprefix(start).strip(), answer.strip())
    return Apart("", text)


class Thought(NamedTuple):
    """What was thought, without its marks, and the tokens of the answer."""

    text: str
    answer: list[int]


class Thoughts:
    """Splits answers as tokens.

    Parameters
    ----------
    tokenizer : transformers tokenizer
    prompt : sequence of int
        Tokens of any prompt: its end says whether thinking has begun there.
    """

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        rendered = self._text(prompt)
        self._opened = any(start in rendered and rendered.rfind(start) > rendered.rfind(end) for start, end in MARKS)

    def apart(self, tokens: Sequence[int]) -> Thought:
        """Return what was thought, and the tokens of the answer after it."""
        text = self._text(tokens)
        marks = next((marks for marks in MARKS if marks[1] in text), None)
        if marks is None:
            begins = self._opened or text.lstrip().startswith(tuple(start for start, _ in MARKS))
            return Thought(text_apart(text).thinking or text.strip(), []) if begins else Thought("", list(tokens))
        end, ends = marks[1], text.count(marks[1])
        last = bisect_left(range(len(tokens)), ends, key=lambda place: self._text(tokens[: place + 1]).count(end))
        return Thought(text_apart(text).thinking, list(tokens[last + 1 :]))

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))
