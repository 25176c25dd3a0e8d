"""The page of every command of `plumbline`, from the command line itself."""

from inspect import cleandoc

import typer

_OPENING = """# Commands

Generated from the command line; `plumbline COMMAND --help` says the same. `make help` lists the targets of make, which
set up what is missing first.
"""


def command_reference() -> str:
    """Return the page, in Markdown: an entry a command, with its arguments and options."""
    from orchestration.command_line import app

    commands = typer.main.get_command(app).commands
    return "\n".join([_OPENING, *(_entry(name, commands[name]) for name in sorted(commands))])


def _entry(name: str, command) -> str:
    usage = f"plumbline {name} {' '.join(_placeholder(each) for each in command.params if _positional(each))}"
    lines = [f"## {name}\n", f"```text\n{usage.strip()}\n```\n", f"{cleandoc(command.help or '')}\n"]
    for parameter in command.params:
        told = getattr(parameter, "help", None) or ""
        lines.append(f"- `{_placeholder(parameter)}`: {told}{_default(parameter)}")
    return "\n".join([*lines, ""])


def _positional(parameter) -> bool:
    return parameter.param_type_name == "argument"


def _placeholder(parameter) -> str:
    if _positional(parameter):
        shown = parameter.name.upper() + ("…" if parameter.nargs == -1 else "")
        return shown if parameter.required else f"[{shown}]"
    return ", ".join(parameter.opts)


def _default(parameter) -> str:
    default = parameter.default
    if default in (None, False, ()) or callable(default):
        return ""
    return f" Default: `{default}`."
