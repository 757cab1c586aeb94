"""What all pages hold at every width, in light and dark, with and without scripts."""

import pytest

from tests.service.pages.harness import WIDTHS, check_everywhere

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUN = "graph=resnet50&title=ResNet-50"
PATHS = {
    "start": "/",
    "predict": f"/?{RUN}&devices=rtx-4090&devices=a100-pcie-80gb&devices=l4",
    "compare": f"/compare?{RUN}&devices=rtx-4090&devices=l4&prices=rtx-4090=0.4,l4=0.7",
    "power": f"/power?{RUN}&batch_size=64",
    "llm": "/llm",
    "neighbours": "/neighbours",
    "circuits": "/circuits",
    "requests": "/requests",
    "too large": f"/?{RUN}&devices=l4&devices=h200&batch_size=8192",
    "too long": "/llm?input_tokens=1000000",
    "problem": "/problems/unknown-device",
}


@pytest.mark.parametrize("name", PATHS)
def test_a_page_fits_and_can_be_read_by_all(page_at, name):
    page = page_at(PATHS[name], WIDTHS[0])
    assert page.locator("h1").count() == 1
    check_everywhere(page, name)


@pytest.mark.parametrize("name", ["predict", "compare", "power", "llm", "neighbours", "circuits"])
def test_a_page_answers_without_scripts(page_at, name):
    page = page_at(PATHS[name], scripts=False)
    assert page.locator("#answer table").count() > 0


def test_the_headers_of_a_page_forbid_other_hosts_and_inline_scripts(page_at):
    page = page_at("/")
    policy = page.evaluate("fetch('/').then((r) => r.headers.get('content-security-policy'))")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
