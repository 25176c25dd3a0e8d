"""What is printed beside what a command prints itself."""

import io
import subprocess
import sys

from rich.console import Console

from plumbline.commands.terminal import working

LIBRARY = "logging.info('a library that says something through the module')"
OURS = "logging.getLogger('plumbline.http.retries').warning('%s: attempt 1 of 4 failed', 'http://x')"


def said(*lines):
    code = "\n".join(("import logging", *lines))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return ran.stderr


def test_a_warning_is_its_words_alone_whatever_a_library_logged_before():
    assert said(LIBRARY, OURS).startswith("WARNING:plumbline.http.retries:"), "what it is needed for"
    plainly = "from plumbline.commands.terminal import say_warnings_plainly as plainly; plainly()"
    assert said(plainly, LIBRARY, OURS) == said(OURS) == "http://x: attempt 1 of 4 failed\n"


def test_that_a_command_works_is_said_on_a_terminal_alone(monkeypatch):
    for terminal in (True, False):
        errors = Console(file=io.StringIO(), force_terminal=terminal, width=80)
        monkeypatch.setattr("plumbline.commands.terminal.errors", errors)
        with working("reading …"):
            pass
        assert ("reading …" in errors.file.getvalue()) == terminal
