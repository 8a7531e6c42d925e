"""Errors of settings: one sentence that names the place, the key, the rule and the value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from pydantic import ValidationError

from equable.errors import ConfigError

Location = Sequence[int | str]


def validation_error(
    error: ValidationError,
    name: Callable[[Location], str],
    *,
    rules: Mapping[str, str] | None = None,
    known: Iterable[str] = (),
) -> ConfigError:
    """The first error of pydantic as a `ConfigError`.

    Where a value may have several types, each reports an error: the one with the longest location is used.

    Parameters
    ----------
    name : from a location to place and key.
    rules : first part of a location → the rule, in place of pydantic's.
    known : last parts of all keys, to suggest one for an unknown key.
    """
    errors = error.errors()
    about = errors[0]["loc"][:2]
    first = max((e for e in errors if e["loc"][:2] == about), key=lambda e: len(e["loc"]))
    location = first["loc"]
    if first["type"] == "extra_forbidden":
        place, _, key = name(location).rpartition(" ")
        last = str(location[-1])
        return ConfigError(f"{place} unknown key {key}{suggestion(last, set(known) - {last})}")
    if first["type"] == "missing":
        return ConfigError(f"{name(location)} must be given; it is missing")
    rule = (rules or {}).get(str(location[0]), re.sub(r"^\w+ should ", "", first["msg"]))
    return ConfigError(f"{name(location)} must {rule}; got {first['input']!r:.200}")


def suggestion(key: str, known: Iterable[str]) -> str:
    """The known key whose last part is similar; the shortest of several with the same last part."""
    ends = {name.rpartition(".")[2]: name for name in sorted(known, key=lambda name: (-len(name), name))}
    close = difflib.get_close_matches(key.rpartition(".")[2], ends, n=1, cutoff=0.7)
    return f"; did you mean {ends[close[0]]}?" if close else ""
