"""Messages are tested by their key words: the culprit, the rule and the value, not by their wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


def assert_words(text: str, *words: str) -> None:
    """Each of the words occurs in the text; their order is free."""
    assert [word for word in words if word not in text] == [], text


@contextmanager
def raises_naming(
    error: type[BaseException] | tuple[type[BaseException], ...], *words: str
) -> Iterator[pytest.ExceptionInfo[BaseException]]:
    """`pytest.raises`, and the message holds each of the words."""
    with pytest.raises(error) as caught:
        yield caught
    assert_words(str(caught.value), *words)
