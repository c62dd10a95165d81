"""Numbers of things in sentences."""


def counted(number: int, noun: str) -> str:
    """Return a number of things.

    >>> counted(1, "clip"), counted(1203, "clip")
    ('1 clip', '1,203 clips')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
