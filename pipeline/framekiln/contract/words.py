"""Counted nouns for sentences."""


def counted(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "clip"), counted(1203, "clip"), counted(2, "person", "people")
    ('1 clip', '1,203 clips', '2 people')
    """
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"
