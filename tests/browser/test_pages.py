"""The pages in a real browser: nothing broken, nothing loaded from elsewhere, and readable on a desk and on a phone."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from recap_steam.config import load_experiment
from recap_steam.report.dataset_page import datasets_stage
from recap_steam.report.page import report_stage
from tests.browser.chromium import EXECUTABLE, Chromium
from tests.experiments import LOGS, RESULTS, RUN_TIMES, run_small, small_config

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium; Debian has it as package chromium")
WIDTHS = {"desk": 1280, "phone": 400}
SMALLEST = 12  # pixels of type
# The size of type as it is seen, of every element that holds text: drawings may be scaled.
TYPE_SIZES = """(() => {
  const sizes = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    const matrix = element.getScreenCTM ? element.getScreenCTM() : null;
    sizes.push(parseFloat(getComputedStyle(element).fontSize) * (matrix ? matrix.d : 1));
  }
  return sizes;
})()"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of the small experiment, and of its datasets, one of which is broken."""
    root = tmp_path_factory.mktemp("pages")
    config = small_config()
    config["datasets"]["broken"] = {"path": f"data/{'broken_' * 20}", "type": "sft"}  # a path that has no place to break
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        run_small()
        report_stage(load_experiment(small_config()), RESULTS, RESULTS / "rule_graph.dot", LOGS, RUN_TIMES, RESULTS / "report")
        datasets_stage(load_experiment(config), RESULTS / "datasets")
    return {name: root / RESULTS / name / "index.html" for name in ("report", "datasets")}


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture(params=WIDTHS)
def width(request) -> int:
    return WIDTHS[request.param]


@pytest.fixture(params=["report", "datasets"])
def page(request, pages, browser, width) -> Chromium:
    """A page as it opens at a width, alone in a folder: it must need no other file."""
    path = pages[request.param].parent.parent / f"alone_{request.param}" / "page.html"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(pages[request.param].read_bytes())
    browser.open(path, width)
    return browser


def test_nothing_fails_and_nothing_is_fetched(page):
    assert page.errors() == []
    assert [url for url in page.requested() if not url.startswith(("file:", "data:"))] == []


def test_every_image_shows(page):
    images = page.evaluate("[...document.images].map(image => [image.alt, image.naturalWidth, image.naturalHeight])")
    assert images and all(alt and width > 100 and height > 50 for alt, width, height in images)


def test_the_page_is_as_wide_as_the_window(page, width):
    """Tables and figures that are wider scroll in their own frame."""
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_type_is_large_enough(page):
    page.evaluate("document.querySelectorAll('details').forEach(details => details.open = true)")
    sizes = page.evaluate(TYPE_SIZES)
    assert len(sizes) > 50 and min(sizes) >= SMALLEST


def test_figures_are_not_shrunk_beyond_reading(page):
    """Their type has 10 points at 150 dots an inch: 21 pixels, which may be shown at two fifths of their size."""
    shown = page.evaluate("[...document.images].map(image => image.getBoundingClientRect().width / image.naturalWidth)")
    assert all(share == 0 or share > 0.35 for share in shown)  # 0: in a part that is folded


def test_links_lead_to_parts_of_the_page(page):
    targets = page.evaluate("[...document.querySelectorAll('nav a')].map(link => link.hash)")
    assert targets and page.evaluate(f"{targets}.every(hash => document.querySelector(hash))")


def test_there_is_something_to_see(page, width, tmp_path):
    page.screenshot(tmp_path / "page.png")
    with Image.open(tmp_path / "page.png") as picture:
        pixels = np.asarray(picture.convert("L"))
    assert pixels.shape[1] == width and pixels.shape[0] > 900
    blank = (pixels.reshape(pixels.shape[0], -1).std(axis=1) < 1).astype(int)
    runs = np.diff(np.flatnonzero(np.concatenate([[1], 1 - blank, [1]])))
    assert runs.max() < 400  # no hole as high as half a window
