"""Untrusted settings: TOML texts that are broken, deep, huge or merely wrong."""

import datetime
import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import equable
from equable.errors import EquableError
from fuzz.hostile import damaged
from fuzz.sandbox import FUZZ, call

PRESETS = {path.stem: path.read_bytes() for path in Path(equable.__file__).parent.rglob("presets/*.toml")}
TEXTS = list(PRESETS.values())
TABLES = [item for text in TEXTS for item in tomllib.loads(text.decode()).items()]
KEYS = sorted({f"{key}.{name}" for key, table in TABLES if isinstance(table, dict) for name in table})
KEYS += sorted({key for key, value in TABLES if not isinstance(value, dict)})
KEYS += ["methods", "colour", "data", "training"]
#: ``--set data.source`` counts after ``--data``: it could name data that exist, and a run would begin.
KEYS_BUT_DATA = [key for key in KEYS if key != "data.source"]
#: The one odd text that is right: a quoted dotted key.
RIGHT = b"'data.source' = 'digits'"
ODD = [
    b"a = " + b"9" * 5000,
    b"[" * 3000,
    b"a = " + b"[" * 3000,
    b"a." * 3000 + b"a = 1",
    b"a = " + b"{b = " * 1500,
    b"seeds = [" + b"1," * 4000 + b"]",
    b"\xff\xfe",
    b"\xef\xbb\xbfname = 'x'",
    b"name = '\x00'",
    b"'' = 1",
    b"'data.source' = 'digits'",
    b"[data]\nsource = '~nobody-of-that-name/x'",
    b"[data]\nsource = 'a\\u0000b'",
    b'[data]\nsource = "a\\u0000b"',
    b'[data]\nsource = "' + b"x" * 5000 + b'"',
    b"[data]\nsource = 'digits'\n[data.source]",
    b"[[methods]]",
    b"[methods.a]",
    b"[methods.a]\ncalibrator = 'json:loads'",
    b"[methods.a]\ncalibrator = 'x.py:Y'",
    b"[methods.a]\ncalibrator = '\\\\x.py:Y'\nsettings = {a = nan}",
    b'[methods.a]\ncalibrator = "a\\u0000.py:Y"',
    b"[methods.'../../x']\ncalibrator = 'x.py:Y'",
    b"[methods.a]\ncalibrator = '~nobody-of-that-name/x.py:Y'",
    b"[methods.a]\ncalibrator = '..:Y'",
    b"[methods.a]\ncalibrator = '.:Y'",
    b"name = ''",
    b"name = 'a\\u2028b'",
    b"training = {batch_size = 1e400}",
    b"[training]\nbatch_size = " + b"1" * 400,
    b"[training]\nlearning_rate = -nan",
    b"[scenario]\ntasks = [" + b"2," * 5000 + b"]",
    b"[data]\nsource = 'digits'\n[scenario]\ntasks = " + b"1" * 100,
    b"[data]\nsource = 'digits'\n[scenario]\norder = [" + b"9" * 300 + b"]",
    b"[data]\nimage_size = " + b"9" * 300,
]


def value(values):
    """A TOML value as text."""
    return st.one_of(
        st.integers().map(str),
        st.floats().map(
            lambda x: str(x).replace("e", ".0e") if "e" in str(x) and "." not in str(x) else str(x)
        ),
        st.booleans().map(lambda x: str(x).lower()),
        st.sampled_from(
            ["'digits'", "''", "'random'", "'..'", "'cpu'", "[3, 2]", "[0.5, 0.2, 0.3]", "1e400", "0x_1"]
        ),
        st.text(max_size=6).map(lambda text: json.dumps(text, ensure_ascii=False)),
        st.dates(datetime.date(1900, 1, 1)).map(str),
        values,
    )


VALUES = st.recursive(
    value(st.nothing()),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda parts: f"[{', '.join(parts)}]")
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(
            lambda table: "{" + ", ".join(f"{k} = {v}" for k, v in table.items()) + "}"
        )
    ),
    max_leaves=8,
)


@st.composite
def tables(draw):
    """Known and unknown keys with values of any kind."""
    chosen = draw(st.lists(st.sampled_from(KEYS), max_size=6, unique=True))
    lines = [f"{key} = {draw(VALUES)}" for key in chosen]
    if draw(st.booleans()):
        lines.append("data.source = 'digits'")
    if draw(st.booleans()):
        fields = st.sampled_from(["calibrator", "rows", "label", "settings", "sha256", "x"])
        for key in draw(st.lists(fields, max_size=4, unique=True)):
            text = draw(VALUES | st.sampled_from(["'x.py:Y'", "'json:loads'", "'no.module:Y'", "'a'"]))
            lines.append(f"methods.{draw(st.sampled_from(['mine', 'rc', 'x-y']))}.{key} = {text}")
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def refused(sandbox, size, *words):
    """A run whose data is missing: whatever else is right, it is refused before anything is written."""
    missing = ("--data", sandbox.box / "missing.npz", "--out", sandbox.box / "run")
    found = sandbox.read(lambda: call("run", *words, *missing), size)
    assert isinstance(found, EquableError)
    assert not (sandbox.box / "run").exists()
    return str(found)


@FUZZ
@given(
    content=damaged(st.sampled_from(TEXTS)) | tables() | st.sampled_from(ODD) | damaged(st.sampled_from(ODD))
)
def test_settings(sandbox, content):
    path = sandbox.box / "mine.toml"
    path.write_bytes(content)
    refused(sandbox, len(content) + 10**6, path)


@FUZZ
@given(
    words=st.lists(
        st.text(max_size=30) | st.builds("{}={}".format, st.sampled_from(KEYS_BUT_DATA), VALUES), max_size=3
    )
)
def test_words(sandbox, words):
    refused(sandbox, 10**6, "digits", *[f"--set={word}" for word in words])


@FUZZ
@given(text=st.text("0123456789,- ²a", max_size=20))
def test_seeds(sandbox, text):
    refused(sandbox, 10**6, "digits", f"--seeds={text}")


def test_what_is_right_is_refused_for_its_data_alone(sandbox):
    """Shows that the tests above reach the last check."""
    assert "missing.npz" in refused(sandbox, 10**6, "digits", "--set=training.max_epochs=2", "--seeds=0-3")
    (sandbox.box / "mine.toml").write_bytes(PRESETS["cifar10"])
    assert "missing.npz" in refused(sandbox, 10**6, sandbox.box / "mine.toml")


@pytest.mark.parametrize("content", ODD, ids=range(len(ODD)))
def test_each_odd_text(sandbox, content):
    path = sandbox.box / "mine.toml"
    path.write_bytes(content)
    refused(sandbox, len(content) + 10**6, path)
    if content != RIGHT:
        words = ("run", path, "--out", sandbox.box / "run")
        assert isinstance(sandbox.read(lambda: call(*words), len(content) + 10**6), EquableError)
