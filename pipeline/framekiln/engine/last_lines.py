"""The last words of a dead process: the end of its standard error, without what tells a user nothing."""

import re

_LINES = 20
_NOISE = re.compile(
    r"^ +File \"[^\"]*\", line \d+ in |^:|^Extension modules:|^PC: @|^ +@ +0x|logging\.cc|/site-packages/ray/"
)  # Ray's, faulthandler's
_LONGEST = 300  # of a line


def last_lines(output: str) -> str:
    """Return the last lines of a process's output that are its own words.

    >>> last_lines("the file is from the future\\nExtension modules: numpy, torch")
    'the file is from the future'
    """
    lines = [line[:_LONGEST] for line in output.strip().splitlines() if not _NOISE.search(line)]
    return "\n".join(lines[-_LINES:])
