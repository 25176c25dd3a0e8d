"""Notebooks as pages of the site: scripts whose cells begin with `# %%`, as Jupytext and editors read them."""

from documentation.repository_pages import PROJECT

EXAMPLES = PROJECT / "examples"
_CELL, _WORDS = "# %%", "# %% [markdown]"


def notebook_pages() -> dict[str, str]:
    """Return path of the page -> Markdown, of every notebook."""
    return {
        f"examples/{path.stem}.md": notebook_page(path.read_text("utf-8")) for path in sorted(EXAMPLES.glob("*.py"))
    }


def notebook_page(script: str) -> str:
    """Return a notebook as Markdown: words as they are, code in blocks."""
    parts = []
    for cell in script.split(f"\n{_CELL}"):
        head, _, body = f"{_CELL}{cell.removeprefix(_CELL)}".partition("\n")
        if head == _WORDS:
            parts.append("\n".join(line.removeprefix("#").removeprefix(" ") for line in body.strip().split("\n")))
        else:
            parts.append(f"```python\n{body.strip()}\n```")
    return "\n\n".join(parts) + "\n"
