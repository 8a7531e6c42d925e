"""Methods of the user's own: a class in a file, named in the settings, joins the table of methods.

::

    [methods.mine]
    calibrator = "my_method.py:MyCalibrator"   # or "package.module:MyCalibrator"; a path starts at this file
    rows = "calibration_buffer"                # or "current", "perturbed"
    label = "Mine"
    settings = { strength = 2.0 }              # what the class is made with

The file is run as Python, with all the rights of who runs it. So it is named by the user alone, in a TOML
file or with ``--method``; no file of data can name one, and a report never runs it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from equable.benchmark.methods import METHODS, Method
from equable.benchmark.settings import Config, MethodSettings
from equable.calibrators import Calibrator
from equable.errors import ConfigError, EquableError, MethodError
from equable.files import sha256_of

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
NAME_RULE = "1 to 40 lower case letters, digits and _, a letter first"


def methods_of(config: Config) -> dict[str, Method]:
    """The table of methods of a run: all of `METHODS`, and its own. No file of theirs is run yet."""
    return METHODS | {name: _method(name, settings) for name, settings in config.methods.items()}


def _method(name: str, settings: MethodSettings) -> Method:
    make = partial(make_calibrator, settings, f"methods.{name}")
    return Method(settings.label, settings.rows, make, fingerprint=_fingerprint(settings))


def _fingerprint(settings: MethodSettings) -> str:
    """What a score depends on besides the outputs; other words on the same code change nothing."""
    told = json.dumps([Path(settings.calibrator).name, settings.rows, settings.settings, settings.sha256])
    return hashlib.sha256(told.encode()).hexdigest()


@contextmanager
def naming(name: str, method: Method, when: str) -> Iterator[None]:
    """Turn whatever a method of the user's own raises into a `MethodError`; ours pass as they are."""
    try:
        yield
    except MethodError:
        raise
    except Exception as error:
        if not method.fingerprint:
            raise
        raise MethodError(f"method {name!r} failed {when}: {_told(error)}") from error


def by_method(failures: Iterable[str]) -> dict[str, list[str]]:
    """What `naming` said of each method, without its name.

    Examples
    --------
    >>> by_method(["method 'mine' failed on seed 0 after task 1: no rows"])
    {'mine': ['on seed 0 after task 1: no rows']}
    """
    found: dict[str, list[str]] = {}
    for text in failures:
        _, name, rest = text.split("'", 2)
        found.setdefault(name, []).append(rest.removeprefix(" failed "))
    return found


def told_failures(failures: Iterable[str], total: int) -> dict[str, str]:
    """One line for each method that failed, of `total` scores that it should have."""
    return {
        name: f"method {name!r}: {len(said)} of {total} scores failed; first: {said[0]}"
        for name, said in by_method(failures).items()
    }


def _told(error: BaseException) -> str:
    """The error, and the last line of code before it that is not the package's."""
    ours = str(Path(__file__).parents[1])
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((ours, "<"))]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{error}" if isinstance(error, EquableError) else f"{type(error).__name__}: {error}{place}"


# From the user's words to settings -------------------------------------------------------------------


def read_methods(tables: Any, where: str, start: Path | None) -> dict[str, MethodSettings]:
    """Settings of ``[methods.*]``, paths made absolute from `start`; names and labels must be new.

    Without `start` a path must be absolute: equable writes it so into a run folder, and a folder that came
    from elsewhere must not bring its own code along.
    """
    if not isinstance(tables, Mapping):
        raise ConfigError(f"{where}: methods must be tables, [methods.<name>]; got {tables!r}")
    return {name: _read_method(name, table, where, start) for name, table in tables.items()}


def _read_method(name: str, table: Any, where: str, start: Path | None) -> MethodSettings:
    key = f"{where}: methods.{name}"
    if not NAME.fullmatch(name):
        raise ConfigError(f"{where}: a method's name must be {NAME_RULE}, like my_method; got {name!r}")
    if name.endswith("noise_floor"):
        raise ConfigError(f"{where}: a method's name must not end in noise_floor; got {name!r}")
    if name in METHODS:
        raise ConfigError(f"{where}: a method's name must be new; {name!r} is one of equable's")
    if not isinstance(table, Mapping):
        raise ConfigError(f"{key} must be a table with the key calibrator; got {table!r}")
    try:
        settings = MethodSettings.model_validate({"label": name, **table})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join([f"{where}: methods", name, *map(str, first["loc"])])
        rule = first["msg"].removeprefix("Input should ").removeprefix("String should ")
        if first["loc"][:1] == ("calibrator",) and first["type"] == "string_pattern_mismatch":
            rule = "be like my_method.py:MyClass or package.module:MyClass"
        if first["loc"][:1] == ("settings",):
            place, rule = f"{key}.settings", "hold numbers, text, true, false, or lists of them"
        raise ConfigError(f"{place} must {rule}; got {first['input']!r}") from None
    if settings.label in {method.label for method in METHODS.values()}:
        raise ConfigError(f"{key}.label must be new; equable calls one of its own {settings.label!r}")
    file, _, kind = settings.calibrator.rpartition(":")
    if file.endswith(".py") and start is not None:
        file = absolute(file, start, f"{key}.calibrator")
    if file.endswith(".py") and not Path(file).is_absolute():
        raise ConfigError(f"{key}.calibrator must be an absolute path in a run folder; got {file!r}")
    return settings.model_copy(update={"calibrator": f"{file}:{kind}"})


def absolute(path: str, start: Path, key: str) -> str:
    """A path of the user's words, from `start` on; the system's complaints become ours."""
    try:
        found = (start / Path(path).expanduser()).resolve()
        found.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{key} must be a path; got {path!r:.200}: {error}") from error
    return str(found)


def parse_method(text: str) -> dict[str, dict[str, str]]:
    """The table of ``--method [NAME=]FILE.py:CLASS``; without a name the class gives it.

    Examples
    --------
    >>> parse_method("my_method.py:BinnedTemperature")
    {'binned_temperature': {'calibrator': 'my_method.py:BinnedTemperature', 'label': 'BinnedTemperature'}}
    """
    name, sign, rest = text.partition("=")
    calibrator = rest if sign else text
    file, _, kind = calibrator.rpartition(":")
    if not file or not kind.strip().isidentifier():
        raise ConfigError(f"--method must be [NAME=]FILE.py:CLASS; the class is missing in {text!r}")
    label = name.strip() if sign else kind
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()
    return {name.strip() if sign else snake: {"calibrator": calibrator.strip(), "label": label}}


def as_they_are(methods: Mapping[str, MethodSettings]) -> dict[str, MethodSettings]:
    """The same methods with the SHA-256 of their files now; one whose file is gone stays as it was."""
    return {name: s.model_copy(update={"sha256": _sha256_now(s)}) for name, s in methods.items()}


def _sha256_now(settings: MethodSettings) -> str:
    path = _source(settings.calibrator.rpartition(":")[0])
    return sha256_of(path) if path is not None and path.is_file() else settings.sha256


def _source(module: str) -> Path | None:
    """The file of code; of a package's module, wherever Python would find it."""
    if module.endswith(".py"):
        return Path(module)
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # it runs the package's __init__
        return None
    return Path(spec.origin) if spec and spec.origin and spec.has_location else None


# From settings to a calibrator -----------------------------------------------------------------------


def check_methods(methods: Mapping[str, MethodSettings], said: Mapping[str, str]) -> None:
    """Make each calibrator once, so that a mistake is found before any training; `said` tells where it is."""
    labels = [settings.label for settings in methods.values()]
    for name, settings in methods.items():
        key = f"{said[name]}: methods.{name}"
        if labels.count(settings.label) > 1:
            raise ConfigError(f"{key}.label must be of one method; {settings.label!r} is of several")
        make_calibrator(settings, key)


def make_calibrator(settings: MethodSettings, key: str) -> Calibrator:
    """A new calibrator of the user's class; the file is run when it is first needed, and when it changed."""
    where = f"{key}: calibrator"
    module, _, kind = settings.calibrator.rpartition(":")
    found = getattr(_load(module, where), kind, None)
    if found is None:
        raise ConfigError(f"{where} must name a class of {module}; it has no {kind!r}")
    if not (isinstance(found, type) and issubclass(found, Calibrator)):
        got = found.__name__ if isinstance(found, type) else repr(found)
        raise ConfigError(f"{where} must be a subclass of equable.calibrators.Calibrator; got {got:.100}")
    try:
        calibrator = found(**settings.settings)
        calibrator._check_settings()
    except Exception as error:
        given = ", ".join(f"{key}={value!r}" for key, value in settings.settings.items())
        raise ConfigError(f"{where} must take its settings; {kind}({given}) raises {_told(error)}") from error
    return calibrator


def _load(module: str, where: str) -> ModuleType:
    if module.endswith(".py") and not Path(module).is_file():
        raise ConfigError(f"{where} must be in an existing file; there is no {module}")
    run: Callable[[str], ModuleType] = _run_file if module.endswith(".py") else importlib.import_module
    try:
        return run(module)
    except (Exception, SystemExit) as error:  # anything: it is somebody's code
        raise ConfigError(f"{where}: {module} cannot be imported: {_told(error)}") from error


def _run_file(path: str) -> ModuleType:
    """The module of a file, under a name that says which version of the file it is.

    Compiled here: Python's own cache beside the file takes an edit within a second for no edit.
    """
    source = Path(path).read_bytes()
    name = f"equable_own_{hashlib.sha256(path.encode() + source).hexdigest()}"
    if name not in sys.modules:
        module = ModuleType(name)
        module.__file__ = path
        sys.modules[name] = module  # dataclasses look their module up
        try:
            exec(compile(source, path, "exec"), module.__dict__)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
