"""The documents: their code runs and prints what they show, and their links have targets."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import tomllib
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "_build" not in path.relative_to(ROOT).parts
)
PAPERS = [
    ROOT / name for name in ("Makefile", "pyproject.toml", "constraints.txt", "CITATION.cff", ".ci/run")
]

FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[^\n`]*)\n(?P<code>.*?)^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL
)
# [text](target), ![picture](target), [name]: target, <img src="target">
LINK = re.compile(r"\]\(<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)|(?:src|href)=\"([^\"]+)\"", re.MULTILINE)
MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|home|root|Users|private|mnt|scratch)/|[A-Z]:\\\\")


class Block(NamedTuple):
    """A fenced block, and the text between it and the block before."""

    language: str
    code: str
    line: int
    gap: str


def blocks(text: str) -> list[Block]:
    found = []
    end = 0
    for match in FENCE.finditer(text):
        line = text[: match.start()].count("\n") + 2
        found.append(Block(match["language"].strip(), match["code"], line, text[end : match.start()]))
        end = match.end()
    return found


def run_page(text: str, name: str) -> list[str]:
    """Run a page's python blocks in one namespace; return what is not as written.

    A block with prompts is compared line by line. A text block right below a python block is what it prints.
    """
    namespace: dict[str, object] = {"__name__": "__main__"}
    complaints = []
    printed = None
    for block in blocks(text):
        is_output = block.language == "text" and printed is not None and not block.gap.strip()
        if is_output and lines_of(printed) != lines_of(block.code):
            complaints.append(f"{name}:{block.line} prints\n{printed}instead of\n{block.code}")
        printed = None
        if block.language == "python":
            if ">>>" in block.code:
                complaints += compare_prompts(block, name, namespace)
            else:
                printed = execute(block, name, namespace)
    return complaints


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def execute(block: Block, name: str, namespace: dict[str, object]) -> str:
    """Run a block as a script and return what it prints; errors point at the page's line."""
    code = compile("\n" * (block.line - 1) + block.code, name, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        exec(code, namespace)
    return stream.getvalue()


def compare_prompts(block: Block, name: str, namespace: dict[str, object]) -> list[str]:
    test = doctest.DocTestParser().get_doctest(block.code, namespace, name, name, block.line - 1)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    report: list[str] = []
    runner.run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)
    return ["".join(report)] if runner.failures else []


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize(
    "path", [path for path in PAGES if "```python\n" in path.read_text(encoding="utf-8")], ids=page_name
)
def test_code_runs_as_written(path, tmp_path, monkeypatch, blank_figures):
    """What a page prints; the figures of the reports that it writes are empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    try:
        with mock.patch.dict("equable.calibrators.CALIBRATORS"):  # a page may add its own
            complaints = run_page(path.read_text(encoding="utf-8"), page_name(path))
    except ModuleNotFoundError as error:
        if str(error.name).split(".")[0] == "equable":
            raise
        pytest.skip(f"{page_name(path)} needs {error.name}, which is not installed")
    assert complaints == []


def slug(heading: str) -> str:
    """A heading's anchor as GitHub and MyST make it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(text: str) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)}


def broken_links(path: Path, text: str) -> list[str]:
    """Relative links of a page that lead to no file or to no heading."""
    broken = []
    for found in LINK.finditer(FENCE.sub("", text)):
        link = next(group for group in found.groups() if group)
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if target != path and not (target.exists() and target.is_relative_to(ROOT)):
            broken.append(link)
        elif anchor and target.suffix == ".md":
            content = text if target == path else target.read_text(encoding="utf-8")
            broken += [] if anchor in anchors(content) else [link]
    return broken


def test_links_lead_somewhere():
    found = {page_name(path): broken_links(path, path.read_text(encoding="utf-8")) for path in PAGES}
    assert {name: links for name, links in found.items() if links} == {}


def test_no_path_of_one_machine():
    paths = [*PAGES, *PAPERS, *(ROOT / "src").rglob("*.py")]
    found = {page_name(path): MACHINE_PATH.findall(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: paths for name, paths in found.items() if paths} == {}


def test_the_readme_is_short_and_names_the_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 130
    for command in ("make demo", "make test"):
        assert command in text
        assert f"\n{command.removeprefix('make ')}:" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_integration_runs_what_the_readme_says():
    script = ROOT / ".ci" / "run"
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#!")
    assert "set -euo pipefail" in lines
    assert [line for line in lines if line.startswith("make ")] == ["make test", "make check", "make docs"]
    assert script.stat().st_mode & 0o111


def test_versions_agree():
    import equable

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {equable.__version__}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation
    assert equable.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_licence_is_whole():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert [n for n in range(1, 10) if f"\n   {n}. " not in text] == []


class TestTheChecks:
    """The checks above, on planted pages."""

    FENCED = "```{language}\n{code}\n```\n"

    def page(self, *parts):
        return "\n".join(self.FENCED.format(language=language, code=code) for language, code in parts)

    def test_blocks_share_a_namespace(self):
        page = self.page(
            ("python", "x = 2"), ("python", ">>> x + 1\n3"), ("python", ">>> y = x"), ("python", "y")
        )
        assert run_page(page, "page") == []

    def test_a_wrong_answer_is_seen(self):
        (complaint,) = run_page(self.page(("python", ">>> 1 + 1\n3")), "page")
        assert "Expected:\n    3\nGot:\n    2" in complaint

    def test_wrong_output_is_seen(self):
        assert run_page(self.page(("python", "print(2)"), ("text", "2")), "page") == []
        (complaint,) = run_page(self.page(("python", "print(2)"), ("text", "3")), "page")
        assert "page:6 prints\n2\ninstead of\n3" in complaint

    def test_text_elsewhere_is_not_output(self):
        page = self.page(("python", "print(2)")) + "\nWords.\n\n" + self.page(("text", "3"))
        assert run_page(page, "page") == []

    def test_an_error_points_at_its_line(self):
        with pytest.raises(ZeroDivisionError) as caught:
            run_page("# Title\n\n" + self.page(("python", "x = 1\nx / 0")), "page")
        assert caught.traceback[-1].lineno == 4  # counted from 0

    @pytest.mark.parametrize(
        "link",
        [
            "[a](nowhere.md)",
            "![a](b.png)",
            "[a]: no.md",
            "[a](#nothing)",
            "[a](README.md#no)",
            "[a](../../x)",
        ],
    )
    def test_broken_links_are_seen(self, link):
        assert len(broken_links(ROOT / "page.md", link)) == 1

    @pytest.mark.parametrize(
        "link", ["[a](README.md)", "[a](https://x.y/z)", "[a](README.md#status)", "# My head\n[a](#my-head)"]
    )
    def test_good_links_pass(self, link):
        assert broken_links(ROOT / "page.md", link) == []

    @pytest.mark.parametrize("text", ["see /home/me/x", "`/home/me/main`/src", "C:\\\\Users"])
    def test_machine_paths_are_seen(self, text):
        assert MACHINE_PATH.search(text)

    @pytest.mark.parametrize("text", ["https://x.y/home/a", "docs/work/a.md", "~/root/x", "/usr/bin/env"])
    def test_other_paths_pass(self, text):
        assert not MACHINE_PATH.search(text)
