"""The page and the report folder: self-contained, escaped, repeatable, rebuilt piece by piece."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest

from equable.errors import FileFormatError, InputError
from equable.reports.report import write_report
from planted_run import make_run, make_score

NASTY = '<script>alert(1)</script> & "it\'s"'
VOID = {"meta", "link", "br", "wbr", "img"}


class Reader(HTMLParser):
    """Checks nesting; collects ids, links and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if values.get("id") else []
        self.links += [values[n] for n in ("href", "src", "xlink:href") if values.get(n)]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def read(path):
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = make_run(tmp_path_factory.mktemp("page") / "run", name=NASTY, paper="cifar10")
    write_report([folder])
    return folder


def files_of(folder):
    found = [p for p in folder.rglob("*") if p.is_file() and p.parent.name in ("tables", "figures")]
    return {p: p.read_bytes() for p in [*found, folder / "report.html"]}


def test_page_is_well_formed_with_unique_ids(folder):
    reader = read(folder / "report.html")
    assert len(reader.ids) == len(set(reader.ids))
    targets = {link.removeprefix("#") for link in reader.links if link.startswith("#")}
    assert targets <= set(reader.ids)


def test_page_loads_nothing(folder):
    reader = read(folder / "report.html")
    assert [link for link in reader.links if not link.startswith(("#", "data:"))] == []
    text = (folder / "report.html").read_text(encoding="utf-8")
    style = "".join(re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL))
    assert "@import" not in style
    assert "url(" not in style


def test_what_users_write_is_escaped(folder):
    reader = read(folder / "report.html")
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert any(NASTY in word for word in reader.words)


def test_only_the_page_s_own_script_may_run(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text


def test_page_says_the_summary_settings_and_commands(folder):
    text = " ".join(read(folder / "report.html").words)
    assert "DATS: accuracy 65.0 %; average ECE 22.2 → 6.8 %; worst change of a task −2.0 points." in text
    assert "8.80" in text  # the paper's
    assert "equable report run" in text
    assert "a CPU" in text
    assert "1,000, 1,001, 1,002" in text
    assert "pictures" in text
    assert "/home/somebody" not in text  # paths of the data are private


def test_page_names_a_learner_other_than_experience_replay(folder, tmp_path, blank_figures):
    assert "SlimResNet18 · " not in (folder / "report.html").read_text()
    run = make_run(tmp_path / "run")
    settings = (run / "config.toml").read_text()
    (run / "config.toml").write_text(f'{settings}learner = "derpp"\n')
    write_report([run], run)
    assert "SlimResNet18 · DER++</p>" in (run / "report.html").read_text()


def test_figures_have_words(folder):
    svgs = [values for tag, values in read(folder / "report.html").tags if tag == "svg"]
    assert len(svgs) == 9
    assert all(values["role"] == "img" and len(values["aria-label"]) > 30 for values in svgs)


def test_bounds_and_best_are_marked(folder):
    text = (folder / "report.html").read_text(encoding="utf-8")
    main = text[text.index('id="table-main"') : text.index("</table>")]
    assert "Oracles, not ranked" in main
    assert main.count('class="best"') == 5  # −2.00 on the last task is shared; never below "not ranked"
    assert 'class="best"' not in main[main.index("not ranked") :]


def test_a_second_folder_gets_the_same_bytes(tmp_path, blank_figures):
    folder = make_run(tmp_path / "run", name=NASTY)
    write_report([folder])
    mine = {path.relative_to(folder): data for path, data in files_of(folder).items()}
    second = tmp_path / "second"
    write_report([folder], second)
    assert {path.relative_to(second): data for path, data in files_of(second).items()} == mine


def test_damaged_files_are_written_again_to_the_same_bytes(folder):
    before = files_of(folder)
    for name in ("figures/runtime.svg", "tables/main.tex", "report.html"):
        (folder / name).write_bytes(b"damaged")
    write_report([folder])
    assert files_of(folder) == before


def test_new_scores_make_a_new_report_and_old_files_go(tmp_path, blank_figures):
    folder = make_run(tmp_path / "run", seeds=(0,), tasks=1)
    (folder / "tables").mkdir()
    (folder / "tables" / "mine.md").write_text("kept")
    page = write_report([folder])
    before = page.read_bytes()
    make_score(0, 0, "dats", (-0.1, 0.2)).save(folder / "scores" / "seed-0_task-0_dats.json")
    (folder / "ablations" / "weights.json").unlink()
    assert write_report([folder]).read_bytes() != before
    assert not (folder / "tables" / "ablation_weights.md").exists()
    assert (folder / "tables" / "mine.md").read_text() == "kept"


def test_several_runs_are_compared(folder, tmp_path):
    other = make_run(tmp_path / "other", name="Other", backbone="resnet32")
    page = write_report([folder, other], tmp_path / "both")
    reader = read(page)
    text = " ".join(reader.words)
    assert "2 runs compared" in text
    assert "Other: DATS: accuracy" in text
    assert len(reader.ids) == len(set(reader.ids))
    assert (tmp_path / "both/tables/comparison.csv").exists()
    assert (tmp_path / "both/figures/worst_change.svg").exists()


def test_refusals(folder, tmp_path):
    with pytest.raises(InputError, match="at least one run folder"):
        write_report([])
    with pytest.raises(InputError, match="--out"):
        write_report([folder, folder])
    with pytest.raises(FileFormatError, match="must hold scores"):
        write_report([tmp_path])
