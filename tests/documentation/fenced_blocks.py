"""The pages of the repository, with the snippets and commands that they show."""

import re
from dataclasses import dataclass
from pathlib import Path

from documentation.repository_pages import FILES, PROJECT

PAGES = [
    *(PROJECT / file for file in FILES.values() if file != "CHANGELOG.md" and (PROJECT / file).exists()),
    *sorted((PROJECT / "docs").rglob("*.md")),
]
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```", re.DOTALL | re.MULTILINE
)
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block; `line` is that of its first line."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(PROJECT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        inner = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        found.append(Block(page, line, match["language"], inner))
    return found


def written_in(*languages: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language in languages]


def command_lines(text: str) -> list[str]:
    """Return the lines of a shell, those that go on in the next one joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]


def inline_code(page: Path) -> list[str]:
    text = _BLOCK.sub("", page.read_text("utf-8"))
    return [" ".join(code.split()) for code in _CODE.findall(text)]
