"""Pages of the repository as pages of the site: which file is which page, and where its links lead."""

import posixpath
import re

from resources.checkout import PROJECT

FILES = {
    "index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md",
    "studies.md": "studies/README.md", "benchmarks.md": "benchmarks/README.md",
}  # fmt: skip
"""Page -> file of the repository, of those that do not lie in `docs`; one that is not there is no page."""
DECISIONS = "decisions/index.md"

_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")


def repository_pages() -> dict[str, str]:
    """Return the text of every page that is a file of the repository outside `docs`."""
    return {page: (PROJECT / file).read_text("utf-8") for page, file in FILES.items() if (PROJECT / file).exists()}


def decisions_page() -> str:
    """Return the list of decision records, in Markdown."""
    lines = ["# Decisions\n", "What is not obvious, why it is so, and what it costs.\n"]
    for path in sorted((PROJECT / "docs" / "decisions").glob("[0-9]*.md")):
        title = path.read_text("utf-8").splitlines()[0].removeprefix("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join([*lines, ""])


def with_links_of_the_site(text: str, page: str, files: set[str]) -> str:
    """Return a page whose links to files and pictures of the site lead there; links to others become plain text.

    Parameters
    ----------
    text : str
        Markdown, with links as they hold in the repository.
    page : str
        Its path in the site, such as `scale.md`.
    files : set of str
        Every file of the site: pages, pictures, the sample report.
    """
    origin = FILES.get(page, f"docs/{page}")

    def linked(match: re.Match[str]) -> str:
        path, _, anchor = match["target"].partition("#")
        if not path or ":" in path:
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(origin), path))
        target = _page_of(file)
        relative = posixpath.relpath(target, posixpath.dirname(page) or ".")
        if match["picture"]:
            return f"![{match['text']}]({relative})"
        if target in files:
            return f"[{match['text']}]({relative}{'#' + anchor if anchor else ''})"
        # What is neither in the site nor a file stays, and the strict build refuses it.
        return match["text"] if (PROJECT / file).exists() else match[0]

    return _LINK.sub(linked, text)


def _page_of(file: str) -> str:
    """Return the page that a file would be; of a folder that of its README, or of the list of decisions."""
    if file == "docs/decisions":
        return DECISIONS
    pages = {path: page for page, path in FILES.items()}
    return pages.get(file) or pages.get(f"{file}/README.md") or file.removeprefix("docs/")
