"""What every page must hold in a browser, whatever its width and its colour scheme."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import eventually

try:
    from playwright import sync_api
except ImportError:
    sync_api = None

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
ARGUMENTS = ["--no-sandbox", "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup"]
"""No suggestions below the address, which each window would load as two pages of their own."""
WIDTHS = (390, 768, 1280, 1920)
AXE_WIDTHS = (390, 1280)
SCHEMES = ("light", "dark")
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
HEIGHT = 900
WIDE = """[...document.querySelectorAll("body *")]
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => each.outerHTML.slice(0, 80)).slice(0, 3)"""
"""What lies beyond the right edge of the window."""

CONTRASTS = ["color-contrast", "link-in-text-block"]
TAKE_ALIKE = """() => {
  const seen = new Set();
  const look = (each) => [each.tagName, each.getAttribute("class"), each.getAttribute("style"),
    each.hidden, each.disabled].join();
  const written = (each) => look(each) + /\\S/.test(each.textContent);
  const above = (each) => each ? look(each) + above(each.parentElement) : "";
  const alike = [...document.querySelectorAll("tbody tr")].filter((row) => {
    const key = [row.checkVisibility(), above(row), ...[...row.querySelectorAll("*")].map(written)];
    return seen.size === seen.add(key.join(";")).size;
  });
  window.taken = alike.map((row) => [row.parentNode, row, row.nextSibling]).reverse();
  alike.forEach((row) => row.remove());
}"""
"""Takes out each row of a table that has the same elements, classes and styles as one before it."""
PUT_BACK = "window.taken.forEach(([table, row, next]) => table.insertBefore(row, next))"

DRAWN = "[data-drawn=yes], details:not([open]) *"
UNFINISHED = f".htmx-request, [hx-trigger=load], figure.chart:not({DRAWN})"
"""What a page still waits for; charts in folded details are drawn when they are opened."""

PICTURES = os.environ.get("FORERUN_PICTURES")
"""Folder in which `check_everywhere` keeps a picture of every page; none where it is not set."""


class Visit:
    """A window of a browser that records what goes wrong in it."""

    def __init__(self, browser, server, width, scheme, scripts=True):
        self.wrong, self._server = [], server
        self._context = browser.new_context(
            viewport={"width": width, "height": HEIGHT}, color_scheme=scheme,
            java_script_enabled=scripts, reduced_motion="reduce",
        )  # fmt: skip
        self.page = self._context.new_page()
        self.page.wrong = self.wrong
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("request", self._asked)

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text} {message.location.get('url')}")

    def _asked(self, request):
        if not request.url.startswith((self._server, "data:", "blob:")):
            self.wrong.append(f"a request to another host: {request.url}")

    def close(self):
        """Close the window, and fail when anything went wrong in it."""
        self._context.close()
        assert self.wrong == [], self.wrong


def wait_for_charts(page):
    """Wait until the parts that are asked for later are there and every chart is drawn."""
    page.wait_for_load_state()
    # Polled from here: a function that waits in the page would need eval, which pages forbid.
    eventually(lambda: page.evaluate(f"!document.querySelector(`{UNFINISHED}`)"), within_s=60)


@contextmanager
def asking(page, part):
    """What the block does asks for an address with this part; its answer is there at the end."""
    with page.expect_response(lambda answer: part in answer.url):
        yield
    wait_for_charts(page)


def enter(page, field, text):
    """Write into a field and leave it, which asks."""
    page.fill(field, text)
    page.press(field, "Tab")


def check_everywhere(page, name):
    """No sideways scrolling at any width, and no violation at the narrowest and a wide one.

    The page is not loaded again. In the dark scheme axe checks contrasts alone, because nothing
    else changes with the scheme, and at one width, because contrasts do not change with it.

    Args:
        page: the page, whose charts are drawn.
        name: name of the pictures.
    """
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": HEIGHT})
        for scheme in SCHEMES if PICTURES or width == AXE_WIDTHS[-1] else ("light",):
            page.emulate_media(color_scheme=scheme)
            _keep_picture(page, f"{name}-{width}-{scheme}")
            if scheme == "light":
                check_width(page)
                if width in AXE_WIDTHS:
                    check_rules(page)
            elif width == AXE_WIDTHS[-1]:
                check_rules(page, contrasts_alone=True)


def check_width(page):
    """The page does not scroll sideways."""
    wide, window = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide <= window, f"{wide} px in a window of {window} px: {page.evaluate(WIDE)}"


def check_rules(page, contrasts_alone=False):
    """Nothing violates the rules of axe, or that of contrasts alone.

    Charts are left out: they are images with a text, as a figure's table has their content. Of rows
    that look alike the contrasts of the first are computed, which takes axe most of its time. Style
    sheets are not read again for it: no rule that it applies unasked looks into them.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text())
    page.evaluate(TAKE_ALIKE)
    found = _violations(page, {"runOnly": CONTRASTS})
    page.evaluate(PUT_BACK)
    if not contrasts_alone:
        found += _violations(page, {"rules": {name: {"enabled": False} for name in CONTRASTS}})
    said = [(each["id"], [node["html"][:200] for node in each["nodes"][:3]]) for each in found]
    assert not said, f"{page.viewport_size['width']} px: {said}"


def _violations(page, options):
    options = {"resultTypes": ["violations"], "preload": {"assets": ["media"]}, **options}
    return page.evaluate("(o) => axe.run({exclude: ['.plot svg']}, o)", options)["violations"]


def _keep_picture(page, name):
    if PICTURES:
        page.wait_for_timeout(200)  # charts follow the width
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)
