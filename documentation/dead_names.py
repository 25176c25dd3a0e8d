"""Fail on names of the program that nothing in the program uses; tests are no use.

`vulture` looks at the code; names in templates and in registries (`module:Name`) are used too, and fields of records
are for their readers. What is left is dead, or is named here with the reason why it lives.
"""

import ast
import re
import sys
from pathlib import Path

from vulture.core import Vulture

from resources.checkout import PROJECT

PACKAGES = ("plumbline", "assets", "resources", "orchestration", "documentation", "benchmarks")
CALLED_BY_DECORATORS = (
    "@model_validator", "@model_serializer", "@field_validator", "@app.callback", "@automation_sensor", "@executor",
)  # fmt: skip
ALIVE = {
    "model_config": "pydantic reads it",
    "TEXT_GRADIENTS": "the tables of families and methods name it",
    "EXTENDED_SCHEMA": "documents the table for readers of the lake; a test holds it",
    "mlflow_app": "MLflow loads it by its entry point",
    "evaluate": "Dagster calls it on conditions",
    "dask_executor": "Dagster calls it with the settings of a run",
    "LocalRunLauncher": "named in dagster.yaml",
    "KeptSqliteStorage": "named in dagster.yaml",
    **dict.fromkeys(
        ("from_config_value", "index_connection", "connect", "_run_storage", "_event_log_storage", "_schedule_storage"),
        "Dagster asks the storage of an instance",
    ),
    "__class__": "isinstance() reads it",
    "supports_check_run_worker_health": "Dagster asks the run launcher",
    "check_run_worker_health": "Dagster asks the run launcher",
    "_proc_sparse": "tarfile calls it",
    "handle_output": "Dagster asks the io manager",
    "load_input": "Dagster asks the io manager",
    "on_files": "MkDocs calls it",
    "on_page_markdown": "MkDocs calls it",
    "check_config": "Starlette calls it",
    "msg": "logging reads it",
    "truncation_side": "transformers reads it",
    "normalizer": "tokenizers reads it",
    "pre_tokenizer": "tokenizers reads it",
    "post_processor": "tokenizers reads it",
    "progress_bars": "Great Expectations reads it",
    "bytecode_cache": "jinja2 reads it",
    "load_bytecode": "jinja2 calls it",
    "dump_bytecode": "jinja2 calls it",
    **dict.fromkeys(("__getattr__", "__dir__"), "Python asks a module"),
    "_repr_html_": "Jupyter calls it",
    **dict.fromkeys(("log_to", "export"), "for a notebook or a training loop"),
    "writable": "polars asks the file that it writes to",
    "writeable": "numpy keeps an array from being changed",
    "_read_dpi_from_exif": "Pillow calls it",
    "VERSION": "raised by hand when answers are read in another way",
    "FINISH_REASONS": "the vocabulary of a column",
    "published_words": "what papers printed, for whoever compares with it",
    **dict.fromkeys(
        ("score_coverage", "cluster_mean", "cluster_quantile"), "for a notebook: the audit has many at once"
    ),
}


def words_elsewhere() -> set[str]:
    """Return the words of templates, and the classes that registries load by name."""
    words: set[str] = set()
    for path in PROJECT.glob("plumbline/**/*.jinja"):
        for code in re.findall(r"{[{%].*?[}%]}", path.read_text("utf-8"), re.DOTALL):
            words |= set(re.findall(r"\w+", code))
    for package in PACKAGES:
        for path in set(PROJECT.glob(f"{package}/**/*.py")) - {Path(__file__)}:
            words |= set(re.findall(r"\"(?:[\w.]+:)?([A-Z]\w*)\"", path.read_text("utf-8")))
    return words


def fields() -> set[str]:
    """Return the annotated names of classes: fields of results and settings, which are for their readers."""
    return {
        statement.target.id
        for package in PACKAGES
        for path in PROJECT.glob(f"{package}/**/*.py")
        for body in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(body, ast.ClassDef)
        for statement in body.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


def dead_names() -> list[str]:
    """Return what `vulture` says of each name that is dead."""
    found = Vulture(ignore_decorators=list(CALLED_BY_DECORATORS))
    found.scavenge([str(PROJECT / package) for package in PACKAGES])
    found.used_names.update(words_elsewhere() | fields())
    return [
        f"{item.filename.relative_to(PROJECT)}:{item.first_lineno}: {item.message}"
        for item in found.get_unused_code()
        if item.name not in ALIVE
    ]


def main() -> None:
    """Print that no name is dead, or end with those that are and what to do about them."""
    if lines := dead_names():
        remedy = (
            "Remove each name, or list it in ALIVE of documentation/dead_names.py if a library or a person uses it."
        )
        sys.exit("\n".join([*lines, remedy]))
    print("No name of the program is dead.")


if __name__ == "__main__":
    main()
