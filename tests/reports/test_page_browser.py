"""The page in a real browser: quiet, sortable by mouse and keyboard, narrow enough, dark when asked."""

from __future__ import annotations

import shutil

import pytest

from equable.reports.report import write_report
from planted_run import make_run, plant_arrivals

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
FIRST_COLUMN = """
return [...document.querySelectorAll('#table-main tbody.rows')].map(
    body => [...body.rows].map(row => row.cells[0].dataset.value));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if not CHROMIUM or not DRIVER:
        pytest.skip("chromium and chromedriver are not installed")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(made_once):
    root = made_once("browser", write_pages)
    return {"run": root / "one" / "report.html", "comparison": root / "both" / "report.html"}


def write_pages(root):
    name = "A-data-set-whose-name-is-much-too-long-and-has-no-space-to-break-it-anywhere"
    one = make_run(root / "one", name=name, paper="cifar10", tasks=5, seeds=(0,))
    plant_arrivals(one, seeds=(0,))
    two = make_run(root / "two", name="Two", tasks=2, seeds=(0,))
    write_report([one])
    write_report([one, two], root / "both")


def show(browser, path, width=1400, scheme="light"):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    browser.get(path.as_uri())


@pytest.mark.parametrize("which", ["run", "comparison"])
def test_console_is_silent_and_nothing_is_fetched(browser, pages, which):
    show(browser, pages[which])
    assert browser.get_log("browser") == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0


@pytest.mark.parametrize("which", ["run", "comparison"])
@pytest.mark.parametrize("width", [320, 400, 1400])
def test_nothing_overflows(browser, pages, which, width):
    show(browser, pages[which], width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(OUTSIDE) == []


def test_wide_tables_scroll_in_their_own_box(browser, pages):
    show(browser, pages["run"], 400)
    box = "document.querySelector('#table-paper').closest('.scroll')"
    assert browser.execute_script(f"return {box}.scrollWidth > {box}.clientWidth")


OUTSIDE = """
return [...document.querySelectorAll('main *, header *')]
    .filter(e => !e.closest('.scroll, pre, svg') && e.getBoundingClientRect().right > innerWidth + 1)
    .map(e => e.outerHTML.slice(0, 80));
"""


def heading(browser, text):
    cells = browser.find_elements("css selector", "#table-main thead th")
    return next(cell for cell in cells if cell.text.startswith(text))


def test_click_sorts_within_sections_and_back(browser, pages):
    show(browser, pages["run"])
    original = browser.execute_script(FIRST_COLUMN)
    column = heading(browser, "Average ECE")
    assert column.get_attribute("aria-sort") == "none"
    button = column.find_element("tag name", "button")
    button.click()
    assert column.get_attribute("aria-sort") == "ascending"
    ranked, _, bounds = browser.execute_script(FIRST_COLUMN)
    assert ranked == ["DATS", "RC", "T-CIL", "TS", "Uncalibrated"]
    # sections stay apart: the noise floor is lowest, and only among the bounds
    assert bounds[:2] == ["Noise floor", "Temperature per task"]
    button.click()
    assert column.get_attribute("aria-sort") == "descending"
    assert browser.execute_script(FIRST_COLUMN)[0] == ranked[::-1]
    button.click()
    assert column.get_attribute("aria-sort") == "none"
    assert browser.execute_script(FIRST_COLUMN) == original


def test_keyboard_sorts_and_rows_without_numbers_stay_last(browser, pages):
    show(browser, pages["run"])
    column = heading(browser, "ΔLECE")
    button = column.find_element("tag name", "button")
    browser.execute_script("arguments[0].focus()", button)
    button.send_keys("\ue007")  # Enter
    ranked = browser.execute_script(FIRST_COLUMN)[0]
    assert ranked[2:] == ["T-CIL", "RC", "Uncalibrated"]
    button.send_keys(" ")
    assert column.get_attribute("aria-sort") == "descending"
    assert browser.execute_script(FIRST_COLUMN)[0][0] == "RC"
    assert browser.execute_script(FIRST_COLUMN)[0][-1] == "Uncalibrated"


def test_names_sort_as_words(browser, pages):
    show(browser, pages["run"])
    heading(browser, "Method").find_element("tag name", "button").click()
    assert browser.execute_script(FIRST_COLUMN)[0] == ["DATS", "RC", "T-CIL", "TS", "Uncalibrated"]


COLOURS = """
const style = getComputedStyle(document.body);
const hatched = document.querySelector('pattern rect');
const word = [...document.querySelectorAll('figure svg text')].find(t => t.textContent === 'RC');
const marker = document.querySelector('figure svg defs path[style*="1f2328"]');
return [style.backgroundColor, style.color, ...[word, hatched].map(e => getComputedStyle(e).fill),
        getComputedStyle(marker).stroke];
"""


def test_dark_mode_reaches_page_and_figures(browser, pages):
    show(browser, pages["run"], scheme="light")
    light = browser.execute_script(COLOURS)
    assert light[0] == "rgb(255, 255, 255)"
    show(browser, pages["run"], scheme="dark")
    dark = browser.execute_script(COLOURS)
    assert dark[0] == "rgb(20, 23, 28)"
    assert all(before != after for before, after in zip(light, dark, strict=True))


def test_print_is_light_and_unfolded(browser, pages):
    show(browser, pages["run"], scheme="dark")
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    assert (
        browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        == "rgb(255, 255, 255)"
    )
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script("return document.querySelectorAll('details:not([open])').length") == 0
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_page_reads_in_order_without_its_script(pages, browser):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, pages["run"])
        assert "average ECE" in browser.find_element("css selector", ".lead").text
        assert browser.find_elements("css selector", "th button") == []
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
