"""Settings from strangers: TOML texts that are broken, deep, huge or merely wrong."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equable.benchmark.config import PRESETS, load_config, parse_seeds, read_config
from equable.benchmark.settings import Config, default_settings
from equable.benchmark.toml import dump_toml, read_preset
from equable.errors import ConfigError
from fuzz.hostile import damaged
from fuzz.sandbox import FUZZ

TEXTS = [read_preset(name).encode() for name in ("default", *PRESETS)]
KEYS = [*default_settings(), "methods", "colour", "data", "training"]
ODD = [
    b"a = " + b"9" * 5000,
    b"[" * 3000,
    b"a = " + b"[" * 3000,
    b"a." * 3000 + b"a = 1",
    b"a = " + b"{b = " * 1500,
    b"seeds = [" + b"1," * 30000 + b"]",
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
        st.text(max_size=6).map(lambda text: dump_toml({"a": text}).removeprefix("a = ").strip()),
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


@FUZZ
@given(
    content=damaged(st.sampled_from(TEXTS)) | tables() | st.sampled_from(ODD) | damaged(st.sampled_from(ODD))
)
def test_settings(sandbox, content):
    path = sandbox.box / "mine.toml"
    path.write_bytes(content)
    for reader in (lambda: load_config(str(path)), lambda: read_config(path)):
        found = sandbox.read(reader, len(content) + 10**6)
        if isinstance(found, Config):  # what is read can be written, and is then the same
            again = sandbox.box / "again.toml"
            again.write_text(found.to_toml(), encoding="utf-8")
            assert read_config(again) == found


@FUZZ
@given(
    words=st.lists(
        st.text(max_size=30) | st.builds("{}={}".format, st.sampled_from(KEYS), VALUES), max_size=3
    )
)
def test_words(sandbox, words):
    found = sandbox.read(lambda: load_config("digits", settings=words), 10**6)
    assert isinstance(found, (Config, ConfigError))


@FUZZ
@given(text=st.text("0123456789,- ²a", max_size=20))
def test_seeds(sandbox, text):
    found = sandbox.read(lambda: parse_seeds(text), 10**6)
    if not isinstance(found, ConfigError):
        assert found
        assert all(isinstance(seed, int) and seed >= 0 for seed in found)


@pytest.mark.parametrize("content", ODD, ids=range(len(ODD)))
def test_each_odd_text(sandbox, content):
    path = sandbox.box / "mine.toml"
    path.write_bytes(content)
    found = sandbox.read(lambda: load_config(str(path)), len(content) + 10**6)
    assert isinstance(found, (ConfigError, Config))
