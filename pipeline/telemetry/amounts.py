"""Numbers and what they are of, for a terminal; the report, which may say "no errors", has its own words."""


def counted(value: int, one: str) -> str:
    """In so many words: 0 errors; 1 error; 1,234 errors."""
    return f"{value:,} {one}" if value == 1 else f"{value:,} {one}s"
