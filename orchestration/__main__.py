"""`python -m orchestration` is the command `plumbline`."""

from orchestration.command_line import main

main()
