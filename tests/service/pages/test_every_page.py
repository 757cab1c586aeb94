"""What all pages hold at every width, in light and dark, with and without scripts."""

import pytest

from tests.service.pages.harness import HEIGHT, WIDTHS, check_everywhere, check_width

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUN = "graph=resnet50&title=ResNet-50"
PATHS = {
    "start": "/",
    "predict": f"/?{RUN}&devices=rtx-4090&devices=a100-pcie-80gb&devices=l4",
    "compare": f"/compare?{RUN}&devices=rtx-4090&devices=l4&prices=rtx-4090=0.4,l4=0.7",
    "power": f"/power?{RUN}&batch_size=64",
    "llm": "/llm",
    "training": "/training",
    "neighbours": "/neighbours",
    "circuits": "/circuits",
    "requests": "/requests",
    "too large": f"/?{RUN}&devices=l4&devices=h200&batch_size=8192",
    "too long": "/llm?input_tokens=1000000",
    "two devices": "/llm?device=l4&device=h100-sxm-80gb&max_sequences=1024",
    "problem": "/problems/unknown-device",
}


@pytest.mark.parametrize("name", PATHS)
def test_a_page_fits_and_can_be_read_by_all(page_at, name):
    page = page_at(PATHS[name], WIDTHS[0])
    assert page.locator("h1").count() == 1
    check_everywhere(page, name)


OUTSIDE = """[...document.querySelectorAll(".card *")].filter((each) => {
  const inner = ".scroll, .plot, .unseen, .tall, .choices, datalist";
  if (each.closest(inner) || !each.checkVisibility()) return false;
  const edge = each.closest(".card").getBoundingClientRect().right;
  return each.getBoundingClientRect().width > 1 && each.getBoundingClientRect().right > edge + 1;
}).map((each) => each.outerHTML.slice(0, 80)).slice(0, 3)"""
"""What lies beyond the right edge of its card, but for what scrolls."""
KEPT_AS_DRAWN = "addEventListener('resize', (event) => event.stopImmediatePropagation(), true)"
"""Charts are not drawn again at each of the widths."""


@pytest.mark.parametrize(
    "path",
    [
        *(PATHS[name] for name in ("predict", "compare", "llm", "training", "requests")),
        "/leaderboard",
    ],
)
def test_nothing_lies_outside_its_card_at_any_width(page_at, path):
    page = page_at(path, 320)
    page.evaluate(KEPT_AS_DRAWN)
    for width in range(320, 1921, 20):
        page.set_viewport_size({"width": width, "height": HEIGHT})
        check_width(page)
        assert page.evaluate(OUTSIDE) == [], f"{width} px"


@pytest.mark.parametrize(
    "name", ["predict", "compare", "power", "llm", "training", "neighbours", "circuits"]
)
def test_a_page_answers_without_scripts(page_at, name):
    page = page_at(PATHS[name], scripts=False)
    assert page.locator("#answer table").count() > 0


def test_the_headers_of_a_page_forbid_other_hosts_and_inline_scripts(page_at):
    page = page_at("/")
    policy = page.evaluate("fetch('/').then((r) => r.headers.get('content-security-policy'))")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
