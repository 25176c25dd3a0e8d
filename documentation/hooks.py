"""What mkdocs calls: adds the generated pages, and lets links lead to pages of the site."""

from mkdocs.structure.files import File, Files

from documentation.asset_reference import asset_reference
from documentation.audit_file_reference import audit_file_reference
from documentation.command_reference import command_reference
from documentation.metric_reference import metric_reference
from documentation.notebooks import notebook_pages
from documentation.python_reference import python_reference
from documentation.repository_pages import DECISIONS, decisions_page, repository_pages, with_links_of_the_site

_GENERATED = {
    "reference/audit-file.md": audit_file_reference,
    "reference/metrics.md": metric_reference,
    "reference/assets.md": asset_reference,
    "reference/commands.md": command_reference,
    "reference/python.md": python_reference,
    DECISIONS: decisions_page,
}


def on_files(files: Files, *, config) -> Files:
    """Add the pages that are generated, and those that are files of the repository outside `docs`."""
    made = {page: make() for page, make in _GENERATED.items()} | notebook_pages()
    for page, text in (repository_pages() | made).items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page, config, files: Files) -> str:
    """Let the links of a page lead into the site; generated ones are written for it."""
    if page.file.src_uri in _GENERATED:
        return markdown
    return with_links_of_the_site(markdown, page.file.src_uri, {file.src_uri for file in files})
