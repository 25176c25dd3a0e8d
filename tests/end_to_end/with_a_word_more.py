"""The command line of a Plumbline whose suite `crime` has a word more: what somebody gets who adds it to the file.

With `killed` before the command it is killed when a cell has been computed, before Dagster is told what stayed.
"""

import copy
import os
import signal
import sys

from plumbline.catalog import suites

_data_of = suites.data_of


def _with_burglar(name):
    content = copy.deepcopy(_data_of(name))
    if name == "crime":
        block = next(each for each in content["candidates"] if each["category"] == "crime")
        block["words"] = [*block["words"], "burglar"]
    return content


suites.data_of = _with_burglar

if __name__ == "__main__":
    if sys.argv[1:2] == ["killed"]:
        from orchestration.items import ItemRunner

        del sys.argv[1]
        tell = ItemRunner.report_unchanged

        def tell_or_die(runner, item):
            if item.job == "cells":
                os.kill(os.getpid(), signal.SIGKILL)
            tell(runner, item)

        ItemRunner.report_unchanged = tell_or_die
    from orchestration.command_line import main

    main()
