"""User methods: a calibrator class in a file that the settings name joins the table of methods.

::

    [methods.mine]
    calibrator = "my_method.py:MyCalibrator"   # or "package.module:MyCalibrator"; a path starts at this file
    rows = "calibration_buffer"                # or "current", "perturbed"
    label = "Mine"
    settings = { strength = 2.0 }              # arguments of the class

The file is run as Python, with all rights of the user. So only the user can name it, in a TOML file or with
``--method``; a data file cannot name one, and a report never runs it.
"""

from __future__ import annotations

import hashlib
import json
import re
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any

from pydantic import ValidationError

from equable.benchmark.config_errors import validation_error
from equable.benchmark.methods import METHODS, Method
from equable.benchmark.settings import Config, MethodSettings
from equable.calibrators import Calibrator
from equable.errors import ConfigError, EquableError, MethodError
from equable.files import sha256_of

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
NAME_RULE = "1 to 40 lower case letters, digits and _, a letter first"


def methods_of(config: Config) -> dict[str, Method]:
    """The table of methods of a run: `METHODS` and its user methods, whose files are not run yet."""
    methods = dict(METHODS)
    for name, own in config.methods.items():
        make = partial(make_calibrator, own, f"methods.{name}")
        # what a score depends on besides the outputs; the label and the folder do not count
        parts = [Path(own.calibrator).name, own.rows, own.settings, _sha256_now(own)]
        digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        methods[name] = Method(own.label, own.rows, make, fingerprint=digest)
    return methods


@contextmanager
def method_errors(name: str, method: Method, when: str) -> Iterator[None]:
    """Turn any error of a user method into a `MethodError`; errors of other methods stay as they are."""
    try:
        yield
    except MethodError:
        raise
    except Exception as error:
        if not method.fingerprint:
            raise
        raise MethodError(f"method {name!r} failed {when}: {_describe(error)}") from error


def describe_failures(failures: Iterable[str], total: int) -> dict[str, str]:
    """One line for each method that failed, from messages of `method_errors`; `total` scores were due."""
    found: dict[str, list[str]] = {}
    for text in failures:
        _, name, rest = text.split("'", 2)
        found.setdefault(name, []).append(rest.removeprefix(" failed "))
    return {
        name: f"method {name!r}: {len(messages)} of {total} scores failed; first: {messages[0]}"
        for name, messages in found.items()
    }


def _describe(error: BaseException) -> str:
    """The error and the last line of code before it that is not of this package."""
    package = str(Path(__file__).parents[1])
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not frame.filename.startswith((package, "<"))]
    if isinstance(error, EquableError):
        return str(error)
    place = f" ({Path(outside[-1].filename).name}, line {outside[-1].lineno})" if outside else ""
    return f"{type(error).__name__}: {error}{place}"


# From TOML to settings -------------------------------------------------------------------


def read_methods(tables: Any, origin: str, start: Path | None) -> dict[str, MethodSettings]:
    """Settings of ``[methods.*]``, paths made absolute from `start`; names and labels must be new.

    Without `start` a path must be absolute: a run folder that was copied from elsewhere must not run code
    that lies in it.
    """
    if not isinstance(tables, Mapping):
        raise ConfigError(f"{origin}: methods must be tables, [methods.<name>]; got {tables!r}")
    return {name: _read_method(name, table, origin, start) for name, table in tables.items()}


def _read_method(name: str, table: Any, origin: str, start: Path | None) -> MethodSettings:
    key = f"{origin}: methods.{name}"
    if not NAME.fullmatch(name):
        raise ConfigError(f"{origin}: a method's name must be {NAME_RULE}, like my_method; got {name!r}")
    if name.endswith("noise_floor"):
        raise ConfigError(f"{origin}: a method's name must not end in noise_floor; got {name!r}")
    if name in METHODS:
        raise ConfigError(f"{origin}: a method's name must be new; {name!r} is one of equable's")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{key} must be a table with the key calibrator; got {table!r}")
    try:
        settings = MethodSettings.model_validate({"label": name, **table})
    except ValidationError as error:
        raise validation_error(
            error,
            lambda location: f"{key}.{location[0]}",
            rules={
                "calibrator": "be like my_method.py:MyClass or package.module:MyClass",
                "settings": "hold numbers, text, true, false, or lists of them",
            },
            known=MethodSettings.model_fields,
        ) from None
    if settings.label in {method.label for method in METHODS.values()}:
        raise ConfigError(f"{key}.label must be new; equable has a method {settings.label!r}")
    file, _, class_name = settings.calibrator.rpartition(":")
    if file.endswith(".py") and start is not None:
        file = absolute_path(file, start, f"{key}.calibrator")
    if file.endswith(".py") and not Path(file).is_absolute():
        raise ConfigError(f"{key}.calibrator must be an absolute path in a run folder; got {file!r}")
    return settings.model_copy(update={"calibrator": f"{file}:{class_name}"})


def absolute_path(path: str, start: Path, key: str) -> str:
    """The absolute path; a relative one starts at `start`. One that the system refuses is a `ConfigError`."""
    try:
        found = (start / Path(path).expanduser()).resolve()
        found.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{key} must be a path; got {path!r:.200}: {error}") from error
    return str(found)


def parse_method(text: str) -> dict[str, dict[str, str]]:
    """The table of ``--method [NAME=]FILE.py:CLASS``; without a name the class gives it."""
    name, sign, rest = text.partition("=")
    calibrator = rest if sign else text
    file, _, kind = calibrator.rpartition(":")
    if not file or not kind.strip().isidentifier():
        raise ConfigError(f"--method must be [NAME=]FILE.py:CLASS; the class is missing in {text!r}")
    label = name.strip() if sign else kind
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()
    return {name.strip() if sign else snake: {"calibrator": calibrator.strip(), "label": label}}


def with_current_digests(methods: Mapping[str, MethodSettings]) -> dict[str, MethodSettings]:
    """The methods with the SHA-256 of their files now; one whose file is gone stays as it was."""
    return {name: s.model_copy(update={"sha256": _sha256_now(s)}) for name, s in methods.items()}


def _sha256_now(settings: MethodSettings) -> str:
    source = settings.calibrator.rpartition(":")[0]
    if not source.endswith(".py"):
        try:
            spec = find_spec(source)
        except Exception:  # it runs the package's __init__
            spec = None
        source = (spec.origin or "") if spec and spec.has_location else ""
    return sha256_of(source) if Path(source).is_file() else settings.sha256


# From settings to a calibrator -----------------------------------------------------------------------


def check_methods(methods: Mapping[str, MethodSettings], origins: Mapping[str, str]) -> None:
    """Make each calibrator once, so that a mistake is found before any training."""
    labels = [settings.label for settings in methods.values()]
    for name, settings in methods.items():
        key = f"{origins[name]}: methods.{name}"
        if labels.count(settings.label) > 1:
            raise ConfigError(f"{key}.label must be of one method; {settings.label!r} is of several")
        make_calibrator(settings, key)


def make_calibrator(settings: MethodSettings, key: str) -> Calibrator:
    """A new calibrator of the user's class."""
    where = f"{key}: calibrator"
    module, _, kind = settings.calibrator.rpartition(":")
    found = _find(module, kind, where)
    if found is None:
        raise ConfigError(f"{where} must name a class of {module}; it has no {kind!r}")
    if not (isinstance(found, type) and issubclass(found, Calibrator)):
        got = found.__name__ if isinstance(found, type) else repr(found)
        raise ConfigError(f"{where} must be a subclass of equable.calibrators.Calibrator; got {got:.100}")
    try:
        calibrator = found(**settings.settings)
        calibrator.check()
    except Exception as error:
        given = ", ".join(f"{key}={value!r}" for key, value in settings.settings.items())
        raise ConfigError(
            f"{where} must take its settings; {kind}({given}) raises {_describe(error)}"
        ) from error
    return calibrator


def _find(module: str, name: str, where: str) -> Any:
    """The object `name` of a file or module, or None; the file is run each time, so edits take effect."""
    is_file = module.endswith(".py")
    if is_file and not Path(module).is_file():
        raise ConfigError(f"{where} must be in an existing file; there is no {module}")
    try:
        return run_path(module).get(name) if is_file else getattr(import_module(module), name, None)
    except (Exception, SystemExit) as error:  # user code may raise anything
        raise ConfigError(f"{where}: {module} cannot be imported: {_describe(error)}") from error
