"""Parsing of option values."""


def listed(text: str | None) -> list[str] | None:
    """Names separated by commas, with or without spaces."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]
