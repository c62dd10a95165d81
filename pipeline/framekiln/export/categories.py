"""The categories of an export in the order in which they were met, each with a name of its own."""

from collections.abc import Iterator

from framekiln.export.annotation import Category


class Categories:
    """Numbers of categories, from 0."""

    def __init__(self) -> None:
        self._found: list[Category] = []
        self._numbers: dict[Category, int] = {}

    def number(self, category: Category) -> int:
        """Return the number of a category, which becomes known.

        Categories of one name are one, as masks and poses of people are, unless their keypoints differ.
        """
        if category in self._numbers:
            return self._numbers[category]
        for number, known in enumerate(self._found):
            if known.name == category.name and () in (known.keypoints, category.keypoints):
                self._found[number] = known if known.keypoints else category
                break
        else:
            number = len(self._found)
            self._found.append(category)
        self._numbers[category] = number
        return number

    def __iter__(self) -> Iterator[tuple[str, Category]]:
        """Yield names and categories by number; a name that is taken gets its number."""
        taken: set[str] = set()
        for number, category in enumerate(self._found):
            name = category.name if category.name not in taken else f"{category.name} {number + 1}"
            taken.add(name)
            yield name, category
