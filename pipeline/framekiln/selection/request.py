"""The request for a selection, checked before any reading."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from framekiln.contract.errors import ConfigError, once
from framekiln.contract.output_names import SELECTIONS
from framekiln.output.object_store import Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@dataclass(frozen=True, kw_only=True)
class SelectionRequest:
    """Conditions on rows of `frames/`, in the order in which they are applied.

    Raises ConfigError: a number is below 1, or `balance` and `diverse` are both given.
    """

    where: str | None = None  # an SQL expression over columns
    unique: bool = False  # without copies that `duplicates` found, and frames that equal the next one
    per: Mapping[str, int] = field(default_factory=dict)  # most rows of each shot, identity, or column value
    balance: str | None = None  # equal numbers of each value of this column or expression
    diverse: int | None = None  # this many rows, as different as possible
    order: str | None = None  # SQL expressions, separated by commas; highest first, with `-column` lowest first
    limit: int | None = None

    def __post_init__(self) -> None:
        numbers = {"limit": self.limit, "diverse": self.diverse} | {f"per {name}": n for name, n in self.per.items()}
        for name, number in numbers.items():
            if number is not None and number < 1:
                raise ConfigError(f"{name} must be at least 1, not {number}.", code="FK-SELECTION-NUMBER")
        if self.balance is not None and self.diverse is not None:
            raise ConfigError("balance and diverse exclude each other; give one of them.", code="FK-SELECTION-BOTH")

    def to_json(self) -> str:
        """Return the request in the form of a saved selection's metadata."""
        return json.dumps({name: value for name, value in asdict(self).items() if value not in (None, False, {})})

    @property
    def directions(self) -> list[tuple[str, str]]:
        """Return each expression of `order` with ASC or DESC.

        SQL's own words (ASC, DESC) are accepted too.

        >>> SelectionRequest(order="-rating, round(sharpness, 1), noise asc").directions
        [('rating', 'ASC'), ('round(sharpness, 1)', 'DESC'), ('noise', 'ASC')]
        """
        found = []
        for text in map(str.strip, _split(self.order or "")):
            if worded := re.fullmatch(r"(.+?)\s+(asc|desc)", text, re.IGNORECASE | re.DOTALL):
                found.append((worded[1], worded[2].upper()))
                continue
            lowest = re.fullmatch(r"-\s*\w+", text)  # of a column, so that -taken_at is the oldest first
            found.append((text.lstrip("- "), "ASC") if lowest else (text, "DESC"))
        return found

    @property
    def expressions(self) -> list[str]:
        ordered = [text for text, _ in self.directions]
        return [text for text in (self.where, self.balance, *ordered, *self.per) if text]


def _split(text: str) -> list[str]:
    """Return the parts between commas outside brackets and quotes."""
    parts, depth, quote = [""] if text.strip() else [], 0, ""
    for letter in text if parts else "":
        quote = "" if letter == quote else quote or (letter if letter in "'\"" else "")
        depth += 0 if quote else (letter in "([{") - (letter in ")]}")
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def read_per(words: Any) -> Any:
    """Return `per` from words such as `shot=1`; a mapping, or an item that is no text, stays unchanged.

    Raises ConfigError: a word has no number, or two words have one name.

    >>> read_per(["shot=1", "identity=20"])
    {'shot': 1, 'identity': 20}
    """
    if words is None or not isinstance(words, str | list | tuple):
        return words or {}
    found = list[tuple[str, int]]()
    for word in [words] if isinstance(words, str) else map(str, words):
        name, _, number = word.rpartition("=")
        if not name or not number.strip().isdigit():
            raise ConfigError(f"{word!r} is not of the form COLUMN=NUMBER, as in shot=1.", code="FK-SELECTION-PER")
        found.append((name.strip(), int(number)))
    return once(found, "--per", code="FK-SELECTION-PER")


def selection_path(name: str) -> str:
    """Return the path of a saved selection in its output. Raises ConfigError: the name is invalid."""
    if not _NAME.fullmatch(name):
        message = f"{name!r} is no name of a selection: use letters, digits, - and _, as in sharp-faces."
        raise ConfigError(message, code="FK-SELECTION-NAME")
    return f"{SELECTIONS}/{name}.parquet"


def list_selections(store: Store) -> list[str]:
    """Return the names of saved selections."""
    return sorted(name.removesuffix(".parquet") for name in store.names(SELECTIONS) if name.endswith(".parquet"))
