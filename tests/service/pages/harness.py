"""What every page must hold in a browser, whatever its width and its colour scheme."""

import os
import shutil
from pathlib import Path

try:
    from playwright import sync_api
except ImportError:
    sync_api = None

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
WIDTHS = (390, 768, 1280, 1920)
SCHEMES = ("light", "dark")
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PICTURES = os.environ.get("FORERUN_PICTURES")
"""Folder in which `check_page` keeps a picture of every page; none where it is not set."""


class Visit:
    """A window of a browser that records what goes wrong in it."""

    def __init__(self, browser, server, width, scheme, scripts=True):
        self.wrong, self._server = [], server
        self._context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme,
            java_script_enabled=scripts, reduced_motion="reduce",
        )  # fmt: skip
        self.page = self._context.new_page()
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
        assert self.wrong == []


def wait_for_charts(page):
    """Wait until the parts that are asked for later are there and every chart is drawn."""
    page.wait_for_load_state("networkidle")
    page.wait_for_function(
        "!document.querySelector('.htmx-request, .loading, "
        "figure.chart:not([data-drawn=yes]):not(details:not([open]) *)')"
    )


def check_page(page, name=None):
    """No horizontal scrolling and no violation that axe finds; a picture where one is wanted.

    Args:
        page: the page, whose charts are drawn.
        name: name of the picture.
    """
    if name and PICTURES:
        scheme = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        width = page.viewport_size["width"]
        Path(PICTURES).mkdir(parents=True, exist_ok=True)
        file = f"{name}-{width}-{'dark' if scheme else 'light'}.png"
        page.screenshot(path=Path(PICTURES) / file, full_page=True)
    wide = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    assert wide[0] <= wide[1], f"the page scrolls sideways: {wide}"
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run()")["violations"]
    assert not found, [
        (each["id"], each["help"], [node["html"][:200] for node in each["nodes"][:3]])
        for each in found
    ]
