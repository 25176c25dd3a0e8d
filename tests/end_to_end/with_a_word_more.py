"""The command line of a Plumbline whose suite `crime` has a word more: what somebody gets who adds it to the file."""

import copy

from plumbline.catalog import suites

_read = suites._read


def _with_burglar(name):
    content = copy.deepcopy(_read(name))
    if name == "crime":
        block = next(each for each in content["candidates"] if each["category"] == "crime")
        block["words"] = [*block["words"], "burglar"]
    return content


suites._read = _with_burglar

if __name__ == "__main__":
    from orchestration.command_line import main

    main()
