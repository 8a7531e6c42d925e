from pathlib import Path

import pytest

from equable.errors import InputError
from equable.reports.distinct_names import require_once, short_names
from messages import raises_naming


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/r/x"], ["x"]),
        (["/r/x", "/r/y"], ["x", "y"]),
        (["/r/a/x", "/r/b/x", "/r/y"], ["a/x", "b/x", "y"]),
        (["/r/a/one/x", "/r/b/one/x", "/r/b/two/x"], ["a/one/x", "b/one/x", "two/x"]),
        (["x", "a/x"], ["x", "a/x"]),
        (["/x", "/a/x"], ["/x", "a/x"]),
    ],
)
def test_names_are_as_short_as_they_may(paths, names):
    assert short_names([Path(path) for path in paths]) == names
    assert len(set(names)) == len(names)


def test_a_folder_twice_is_refused_however_it_is_spelt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a" / "x").mkdir(parents=True)
    (tmp_path / "b").symlink_to(tmp_path / "a")
    require_once([Path("a"), Path("a/x")])
    for again in ("a/x", "b/x", "a/../a/x", str(tmp_path / "a" / "x")):
        with raises_naming(InputError, "run must", "once", "x twice"):
            require_once([Path("a"), Path("a/x"), Path(again)])
