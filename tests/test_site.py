"""The site: every public name and rule has an entry, the code runs, and no link is broken."""

from __future__ import annotations

import contextlib
import functools
import http.server
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import screens

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.cli.table import commands

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
sys.path.insert(0, str(NOTEBOOKS))
import conf  # noqa: E402  (in the notebooks' folder)

PAGES = sorted(path for path in NOTEBOOKS.rglob("*.md") if ".ipynb_checkpoints" not in path.parts)


def code_of(path: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", path.read_text("utf-8"), flags=re.DOTALL))


def test_every_public_name_has_one_entry():
    listed = [name for names in conf.CHAPTERS.values() for name in names.split()]
    assert sorted(listed) == sorted(tma.__all__)
    page = conf.python_reference()
    assert [n for n in tma.__all__ if f":: tma_dlpack.{n}\n" not in page] == []
    rooms = conf.RESULT_CLASSES.items()
    results = [f"{room}.{name}" for room, names in rooms for name in names.split()]
    assert [n for n in results if f":: {n}\n" not in page] == []
    page = conf.draw_reference()
    assert [n for n in draw.__all__ if f":: tma_dlpack.draw.{n}\n" not in page] == []


def test_every_rule_has_its_anchor():
    page = conf.rule_reference()
    ids = sorted(rule.id for rule in tma.rules())
    assert sorted(re.findall(r'<span id="rule-(\w+)">', page)) == ids
    assert [rule for rule in ids if page.count(f"\n### {rule}\n") != 1] == []


def test_every_verb_of_the_command_has_its_help():
    page = conf.command_reference()
    assert {"check", "explain", "suggest", "trace", "doctor"} <= set(commands())
    assert [v for v in commands() if f"usage: python -m tma_dlpack {v}" not in page] == []


def test_every_generated_list_is_in_one_page():
    text = "".join(path.read_text("utf-8") for path in PAGES)
    assert sorted(re.findall(r"<!-- generated: (\w+) -->", text)) == sorted(conf.GENERATED)


@pytest.mark.parametrize("path", [p for p in PAGES if code_of(p)], ids=lambda path: path.stem)
def test_the_code_of_a_page_runs_without_a_gpu(path):
    exec(compile(code_of(path), path.name, "exec"), {"__name__": "page"})


def test_pages_can_be_read_on_a_code_host_too():
    """Links have words, and link every guide and notebook; only the site has roles and lists."""
    pages = {path: path.read_text("utf-8") for path in PAGES}
    for path, text in pages.items():
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        assert re.findall(r"\[\]\(|\{(?:ref|doc)\}`", prose) == [], path
    for index, of in (("guide/index.md", "guide/*.md"), ("course.md", "*.ipynb")):
        shown = NOTEBOOKS / index
        names = {path.name for path in NOTEBOOKS.glob(of)} - {shown.name, "changes.md"}
        assert set(re.findall(r"\]\(([\w.]+)\)", pages[shown])) == names, index


class Links(HTMLParser):
    def __init__(self, page: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id" and value:
                self.ids.add(value)
            elif (tag, name) in {("a", "href"), ("img", "src")} and value:
                self.targets.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built without a warning."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    pytest.importorskip("myst_nb", reason="myst_nb is not installed")
    site = tmp_path_factory.mktemp("built") / "site"
    build = [sys.executable, "-m", "sphinx", "-W", "-q", str(NOTEBOOKS), str(site)]
    done = subprocess.run(build, capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    return site


@pytest.mark.slow
def test_no_link_within_the_site_is_broken_and_every_public_name_has_an_anchor(site):
    pages = {page.relative_to(site).as_posix(): Links(page) for page in site.rglob("*.html")}
    pages = {name: page for name, page in pages.items() if not name.startswith("_static/")}
    missing = [
        (name, target)
        for name, page in pages.items()
        for target in page.targets
        if not urlsplit(target).scheme and not is_there(site, pages, name, target)
    ]
    assert missing == []
    assert len(pages) > 25
    for page, module in (("python", tma), ("draw", draw)):
        anchors = pages[f"reference/{page}.html"].ids
        names = [f"{module.__name__}.{name}" for name in module.__all__]
        assert [name for name in names if name not in anchors] == []


@pytest.mark.slow
def test_no_code_is_cut_at_1280_pixels_and_nothing_is_white_in_the_dark(site, chromium):
    names = [path.relative_to(NOTEBOOKS).with_suffix("").as_posix() for path in PAGES]
    dark = ["index", "guide/one_call", "reference/python", "01_swizzle_and_banks"]
    for theme, shown in (("light", [*names, *dark[-1:]]), ("dark", dark)):
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        page.add_init_script(f"localStorage.mode = localStorage.theme = '{theme}'")
        for name in shown:
            page.goto((site / f"{name}.html").as_uri())
            screens.shot(page, f"site-{name.replace('/', '-')}-{theme}", full_page=False)
            assert page.evaluate(CUT) == [], (name, theme)
            assert page.evaluate(SMALL) == [] or name == dark[-1], (name, theme)
            grounds = set(page.evaluate(GROUNDS))
            assert theme == "light" or "rgb(255, 255, 255)" not in grounds, name
        page.close()


#: The background colours of a page's pictures, which are dark or light like the page.
PAPERS = """() => [...document.querySelectorAll(".tma-live")].map((host) =>
  getComputedStyle(host.shadowRoot.querySelector(".t-paper")).fill)"""
PAPER = {"light": {"rgb(255, 255, 255)"}, "dark": {"rgb(21, 25, 31)"}}


@pytest.mark.slow
@pytest.mark.parametrize("system", ["light", "dark"])
def test_pictures_follow_the_system_at_a_first_visit_and_then_the_switch(site, chromium, system):
    context = chromium.new_context(color_scheme=system, viewport={"width": 1280, "height": 900})
    page = context.new_page()  # nothing is stored
    page.goto((site / "index.html").as_uri())
    page.wait_for_selector(".tma-live svg")
    page.wait_for_timeout(400)
    assert set(page.evaluate(PAPERS)) == PAPER[system]
    seen = set()
    for mode in ("dark", "light", "auto"):
        page.locator(".theme-switch-button").first.click()
        page.locator(f".dropdown-menu.show [data-mode={mode}]").first.click()
        page.wait_for_timeout(400)
        theme = page.evaluate("document.documentElement.dataset.theme")
        assert set(page.evaluate(PAPERS)) == PAPER[theme]
        assert theme == (system if mode == "auto" else mode)
        seen.add(theme)
    assert seen == {"light", "dark"}
    context.close()


@pytest.mark.slow
def test_nothing_of_a_picture_is_cut_on_a_phone(site, chromium):
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    for name in ("index", "guide/one_call"):
        page.goto((site / f"{name}.html").as_uri())
        page.wait_for_timeout(600)
        cut = "(h) => h.scrollWidth > h.clientWidth + 1"
        assert page.eval_on_selector_all(".tma-live", f"(all) => all.filter({cut}).length") == 0
        assert page.evaluate(SMALL) == []
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "found"),
    [("715", "errors.html"), ("BOX_RANGE", "rules.html"), ("swizzle", "python.html")],
)
def test_the_search_finds_numbers_and_rules_and_loads_no_page(site, chromium, words, found):
    page = chromium.new_page()
    loaded = []
    page.on("response", lambda response: loaded.append(response.url))
    with served(site) as address:
        page.goto(f"{address}/search.html?q={words}")
        page.wait_for_selector("#search-results li a")
        page.wait_for_timeout(500)
        links = page.eval_on_selector_all("#search-results li a", "(all) => all.map((a) => a.href)")
    assert any(found in link for link in links)
    names = {urlsplit(url).path.lstrip("/") for url in loaded}
    assert {name for name in names if name.endswith(".html")} == {"search.html"}
    assert sum((site / name).stat().st_size for name in names) < 1_000_000  # bytes, not compressed
    page.close()


@contextlib.contextmanager
def served(folder: Path):
    """Serve a folder, as a host of pages does."""
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        """Print nothing."""


@pytest.mark.slow
def test_an_address_that_is_not_there_has_a_page_that_leads_on(site):
    page = Links(site / "404.html")
    assert {"index.html", "reference/index.html"} <= {t.partition("#")[0] for t in page.targets}


@pytest.mark.slow
def test_what_answers_a_question_is_folded_until_a_try(site, chromium):
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    page.goto((site / "00_what_is_tma.html").as_uri())
    asked = page.locator('.tma-ask [data-k="20 copies"]')
    asked.wait_for()
    assert page.locator("details.tma-answer").count() == 6
    assert page.locator("details[open]").count() == 0
    asked.click(force=True)
    answer = page.locator(".cell:has(details.tma-answer)").first
    assert answer.locator("details[open]").count() == 2  # its code and its output
    assert page.locator("details[open]").count() == 2
    page.close()


@pytest.mark.slow
def test_on_a_phone_pages_are_as_wide_as_it_and_letters_of_pictures_are_no_smaller(site, chromium):
    page = chromium.new_page(viewport={"width": 390, "height": 844})
    for name in ("index", "guide/one_call", "guide/choose_a_box", "reference/draw", "course"):
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") == 390, name
        assert page.evaluate(SMALL) == [], name
    page.close()


#: Blocks of code that are wider than their container.
CUT = """() => [...document.querySelectorAll("pre")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.textContent.slice(0, 60))"""
#: Texts of pictures whose letters are less than 12 px high.
SMALL = """() => [...document.querySelectorAll(".tma-live")]
  .flatMap((host) => [...host.shadowRoot.querySelectorAll("text")])
  .filter((t) => t.getScreenCTM().a * parseFloat(getComputedStyle(t).fontSize) < 11.9)
  .map((t) => t.textContent)"""
#: The background colours of the article's elements.
GROUNDS = """() => [...document.querySelectorAll(".bd-article *")]
  .map((e) => getComputedStyle(e).backgroundColor)"""


def is_there(site: Path, pages: dict[str, Links], name: str, target: str) -> bool:
    parts = urlsplit(target)
    file = (site / name).parent / unquote(parts.path) if parts.path else site / name
    linked = pages.get(file.resolve().relative_to(site.resolve()).as_posix())
    known = not parts.fragment or linked is None or parts.fragment in linked.ids
    return file.is_file() and known
