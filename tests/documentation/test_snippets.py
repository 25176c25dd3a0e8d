"""What the pages tell to type is there: audit files validate, Python runs, commands parse with their options."""

import os
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
import yaml
from fenced_blocks import PAGES, Block, command_lines, inline_code, written_in
from typer.main import get_command
from typer.testing import CliRunner

from documentation.repository_pages import PROJECT
from orchestration.command_line import app
from plumbline.config.audit import Audit
from plumbline.config.file import read_audit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TARGETS = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE))
SHELL = {"cp", "export", "mkdir", "rm", "sed"}
ELSEWHERE = {"kubectl", "ssh", "vllm"}
"""Programs that are not installed here: only the files that they are given are looked for."""


# --- audit files


def audit_files() -> list[Block]:
    """Return the YAML blocks of audit files; those that begin with another file's name are entries of it."""
    return [block for block in written_in("yaml") if not block.text.startswith("# an entry of ")]


@pytest.mark.parametrize("block", audit_files(), ids=str)
def test_an_audit_file_is_valid(block, tmp_path):
    text = block.text.replace("COMMIT", COMMIT)
    content = yaml.safe_load(text)
    assert set(content) <= {*Audit.model_fields, "based_on"}, "no part of an audit file"
    # The base, with the checkpoint that it names in a comment and that pages speak of.
    base = yaml.safe_load((PROJECT / "audit.yaml").read_text("utf-8"))
    base["encoders"]["clip-b32"] = {"address": "ViT-B-32-quickgelu/openai"}
    (tmp_path / "audit.yaml").write_text(yaml.safe_dump(base, sort_keys=False), "utf-8")
    whole = {"encoders", "datasets", "labeller"} <= set(content)
    if not whole and "based_on" not in content:
        text = f"based_on: audit.yaml\n{text}"
    path = tmp_path / "shown.yaml"
    path.write_text(text, "utf-8")
    audit = read_audit(path)
    for key in set(content) - {"based_on"}:
        assert key in audit.model_fields_set, key


# --- Python


def scripts() -> list[Block]:
    """Return the Python blocks that stand for themselves; those that begin with a file's name are its text."""
    return [block for block in written_in("python") if not block.text.startswith("# ")]


@pytest.mark.parametrize("page", sorted({block.page for block in scripts()}), ids=lambda page: page.name)
def test_python_runs(page, tmp_path):
    names: dict[str, object] = {}
    for block in (block for block in scripts() if block.page == page):
        source = block.text.replace("/tmp/tutorial", str(tmp_path))
        exec(compile("\n" * (block.line - 1) + source, str(page), "exec"), names)


# --- commands


def shown_commands() -> list[tuple[str, str]]:
    """Return (where, command) for all lines of blocks of commands, and all commands within sentences."""
    found = []
    for block in written_in("bash", "sh", "console", ""):
        lines = command_lines(block.text)
        if block.language or is_command(lines[0]):
            found += [(str(block), line) for line in lines]
    for page in PAGES:
        found += [(page.name, code) for code in inline_code(page) if is_command(code) and " " in code]
    return list(dict.fromkeys(found))


def is_command(text: str) -> bool:
    words = text.removeprefix(".venv/bin/").split()
    return bool(words) and (words[0] in CHECKS or bool(re.match(r"[A-Z_]+=\S* \S", text)))


def parsed_by(command, words: list[str], *, info: str) -> None:
    """Let click read options and arguments; nothing is run."""
    # Typer brings a click of its own, so that what is a group is seen by what it has.
    if hasattr(command, "commands"):
        name = next((word for word in words if not word.startswith("-")), None)
        if name is None:
            return
        assert name in command.commands, f"{info} has no command {name}"
        parsed_by(command.commands[name], words[words.index(name) + 1 :], info=f"{info} {name}")
    elif words:
        command.make_context(info, list(words))


def check_plumbline(words: list[str]) -> None:
    parsed_by(get_command(app), words, info="plumbline")


def check_make(words: list[str]) -> None:
    assert words and set(words) <= TARGETS, words


def check_python(words: list[str]) -> None:
    if not words:
        return
    flag, module, *options = words
    assert flag == "-m" and find_spec(module), words
    if module == "pip":
        extra = re.findall(r"\[(\w+)\]", " ".join(options))
        declared = (PROJECT / "pyproject.toml").read_text("utf-8")
        assert all(re.search(rf"^{name} = \[", declared, re.MULTILINE) for name in extra)
        assert all((PROJECT / word).exists() for word in options if word.endswith(".txt"))
    elif module.split(".")[0] in ("plumbline", "benchmarks"):
        source = Path(find_spec(module).origin).read_text("utf-8")
        names = [word[2:].replace("-", "_") for word in options if word.startswith("--")]
        assert all(re.search(rf"\b{name}\b", source) for name in names), words


def check_pytest(words: list[str]) -> None:
    # What stands behind `-m` and `-k` chooses tests by their mark and name.
    chosen = zip(["", *words], words)
    paths = [word for option, word in chosen if not word.startswith("-") and option not in ("-m", "-k")]
    assert all((PROJECT / path).exists() for path in paths), words


def check_dagster(words: list[str]) -> None:
    from dagster._cli import create_dagster_cli

    parsed_by(create_dagster_cli(), words, info="dagster")
    assert all((PROJECT / word).exists() for word in words if word.endswith(".yaml")), words


def check_dask(words: list[str]) -> None:
    from distributed.cli import dask_scheduler, dask_worker

    programs = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}
    parsed_by(programs[words[0]], words[1:], info="dask")


def check_elsewhere(words: list[str]) -> None:
    given = [word.removeprefix("--from-file=") for word in words]
    files = [word for word in given if word.endswith((".yaml", ".py"))]
    assert all((PROJECT / word).exists() for word in files), files


def check_shell(words: list[str]) -> None:
    """Relative paths are of the checkout; a variable of Plumbline's own is one that the code reads."""
    for word in words:
        name = word.split("=")[0]
        if name.startswith("PLUMBLINE_") and "=" in word:
            assert name in read_variables(), name
        elif re.fullmatch(r"[a-z]+(/[\w.-]+)+", word):
            assert (PROJECT / word).exists(), word


def read_variables() -> set[str]:
    texts = (
        path.read_text("utf-8") for folder in ("orchestration", "resources") for path in (PROJECT / folder).glob("*.py")
    )
    return set(re.findall(r"PLUMBLINE_[A-Z_]+", "".join(texts)))


CHECKS = {
    "plumbline": check_plumbline, "make": check_make, "python": check_python, "pytest": check_pytest,
    "dagster": check_dagster, "dask": check_dask,
    **dict.fromkeys(SHELL, check_shell), **dict.fromkeys(ELSEWHERE, check_elsewhere),
}  # fmt: skip


@pytest.mark.parametrize(("where", "line"), shown_commands(), ids=lambda text: text)
def test_a_command_is_there_and_takes_its_options(where, line):
    words = shlex.split(line, comments=True)
    while words and re.match(r"[A-Z_]+=", words[0]):
        check_shell(words[:1])
        words = words[1:]
    program, *rest = words
    CHECKS[program.removeprefix(".venv/bin/")](rest)


def test_a_wrong_command_is_seen():
    for line in ("plumbline audits", "plumbline diff newest --htm x", "plumbline diff --html x", "make bench-all"):
        program, *rest = line.split()
        with pytest.raises((AssertionError, typer.BadParameter.__base__)):
            CHECKS[program](rest)


@pytest.mark.parametrize("name", [None, *get_command(app).commands])
def test_every_command_helps(name):
    width = {**os.environ, "COLUMNS": "120"}
    shown = CliRunner().invoke(app, ["--help"] if name is None else [name, "--help"], env=width)
    assert shown.exit_code == 0 and "Usage" in shown.output, shown.output


def test_every_page_is_looked_at():
    assert len(PAGES) > 40 and all(isinstance(block, Block) for block in written_in("yaml"))
    assert len(shown_commands()) > 60 and len(written_in("yaml")) > 10
