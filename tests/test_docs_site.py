"""The site: its pictures show what its pages compute, its reference is complete, and it builds offline."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
from html import unescape
from pathlib import Path

import pytest

import equable
import equable.errors
import equable.metrics

DOCS = Path(__file__).parents[1] / "docs"
# what a browser would fetch from elsewhere
FETCHED = re.compile(
    r"<(?:script|img|iframe)[^>]*src=\"(?:https?:)?//|<link[^>]*stylesheet[^>]*href=\"(?:https?:)?//"
)


def words_of(svg: str) -> list[str]:
    """All text of a picture, in the order it is drawn."""
    return [unescape(text).strip() for text in re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL)]


def stored(name: str) -> str:
    return (DOCS / "images" / name).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def drawn() -> str:
    """The method, drawn anew."""
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("draw", DOCS / "draw.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.method_picture()


def test_the_method_is_drawn_with_the_numbers_of_its_page(drawn):
    assert words_of(drawn) == words_of(stored("dats-method.svg"))


def test_the_method_shows_what_its_page_prints():
    page = (DOCS / "methods" / "dats.md").read_text(encoding="utf-8")
    words = stored("dats-method.svg")
    (distance, temperature) = re.search(r"d_test = ([\d.]+), T = ([\d.]+)\n", page).groups()
    assert f"= {float(distance):.2f}<" in words
    assert f"softmax(z / {temperature})" in words


def test_the_tutorial_shows_what_its_page_prints():
    page = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    titles = re.findall(r"^(\w+, newest task · ECE .* %)$", page, re.MULTILINE)
    assert len(titles) == 2
    assert [word for word in words_of(stored("tutorial-reliability.svg")) if "ECE" in word] == titles


def test_pictures_have_no_date():
    assert not [path.name for path in DOCS.glob("images/*.svg") if "<dc:date>" in path.read_text("utf-8")]


def test_the_how_to_quotes_the_measured_numbers():
    page = (DOCS / "how-to" / "own-data.md").read_text(encoding="utf-8")
    measured = (DOCS / "er-cifar100.md").read_text(encoding="utf-8")
    quoted = re.findall(r"([+-]\d\.\d\d) \(([+-]\d\.\d\d) to ([+-]\d\.\d\d)\)", page)
    assert len(quoted) == 8
    for change, low, high in quoted:
        assert f"{change} (95 % interval {low} to {high})" in measured


class TestTheReference:
    TEXT = (DOCS / "reference.md").read_text(encoding="utf-8")

    def test_names_the_front_door(self):
        names = set(equable.__all__) - {"__version__", "metrics"}
        assert not [name for name in names if f":: equable.{name}\n" not in self.TEXT]

    @pytest.mark.parametrize("name", ["integrations.torch", "integrations.onnx"])
    def test_names_the_integrations(self, name):
        try:
            module = importlib.import_module(f"equable.{name}")
        except equable.errors.MissingExtraError as error:
            pytest.skip(str(error))
        assert not [x for x in module.__all__ if f":: equable.{name}.{x}\n" not in self.TEXT]

    def test_takes_metrics_and_errors_whole(self):
        for module in (equable.metrics, equable.errors):
            assert f".. automodule:: {module.__name__}\n   :members:" in self.TEXT

    def test_names_every_command(self):
        import typer

        from equable.cli import app

        commands = typer.main.get_command(app).commands
        section = self.TEXT.partition("## Commands")[2].partition("\n## ")[0]
        assert not [name for name in commands if not re.search(rf"`(equable )?{name}\b", section)]


FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# without the comment behind it
COMMAND = re.compile(r"^(equable [a-z][^\n#]*)", re.MULTILINE)
QUOTED_COMMAND = re.compile(r"`(equable [a-z][^`\n]*)`")
PAGES = [
    DOCS.parent / "README.md",
    *(path for path in sorted(DOCS.rglob("*.md")) if "_build" not in path.parts),
]


def unknown_words(command: str) -> list[str]:
    """Subcommands and options of a command line that the program does not define."""
    import typer

    from equable.cli import app

    node = typer.main.get_command(app)
    words = command.split()[1:]
    while words and hasattr(node, "commands"):
        if words[0].rstrip(",") not in node.commands:
            return [words[0]]
        node = node.commands[words[0].rstrip(",")]
        words = words[1:]
    known = {option for parameter in node.params for option in parameter.opts} | {"--help"}
    return [word for word in words if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known]


def test_commands_are_known():
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        shell = "\n".join(code for language, code in FENCE.findall(text) if language in ("", "sh"))
        commands = QUOTED_COMMAND.findall(FENCE.sub("", text)) + COMMAND.findall(shell)
        unknown = {command: words for command in commands if (words := unknown_words(command))}
        assert unknown == {}, path.name


def test_unknown_commands_are_seen():
    assert unknown_words("equable calibrate x.npz --method dats --no-such -o y") == ["--no-such"]
    assert unknown_words("equable recalibrate x.npz") == ["recalibrate"]
    assert unknown_words("equable datasets chek x") == ["chek"]
    assert unknown_words("equable datasets check x") == []


class TestTheSite:
    """The site that ``make docs`` built beforehand: a build takes longer than all tests of the pages."""

    def test_is_whole_and_fetches_nothing(self):
        built = os.environ.get("EQUABLE_SITE")
        if not built:
            pytest.skip("EQUABLE_SITE does not name the built site: `make docs` builds and checks it")
        folder = Path(built)
        files = folder.rglob("*.html")
        pages = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in files}
        documents = [path.relative_to(DOCS).with_suffix(".html") for path in PAGES if DOCS in path.parents]
        assert not [name.as_posix() for name in documents if name.as_posix() not in pages]
        assert not [name for name, page in pages.items() if FETCHED.search(page)]
        assert pages["methods/dats.html"].count('display="block"') == 7  # equations drawn by the browser
        assert not [name for name, page in pages.items() if "$$" in page]
