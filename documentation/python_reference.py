"""The page of what `import plumbline` promises: mkdocstrings fills each name from its docstring."""

import inspect

import plumbline

_OPENING = """# Python

What `import plumbline` promises: `plumbline.__all__`. From here on a change that breaks a caller raises the first
number of the version. Every example is run by the tests. [In a notebook, in a training loop](../notebook.md) is the
guide.
"""
_FIRST = ("audit", "audit_features", "Audit", "prompts")


def python_reference() -> str:
    """Return the page, in Markdown: audits, then metrics, then suites and what else there is."""
    names = [name for name in plumbline.__all__ if not name.startswith("__") and name not in _FIRST]
    module_of = {name: inspect.getmodule(getattr(plumbline, name)).__name__ for name in names}
    metrics = [name for name in names if module_of[name].startswith("plumbline.metrics") and name[0].islower()]
    sections = {"Audits": _FIRST, "Metrics": metrics, "And": [name for name in names if name not in metrics]}
    parts = [f"## {title}\n\n" + "\n\n".join(map(_entry, listed)) for title, listed in sections.items()]
    return "\n".join([_OPENING, "\n\n".join(parts), ""])


def _entry(name: str) -> str:
    return f"::: plumbline.{name}"
