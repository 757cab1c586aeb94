"""The front page in a real browser, against a real server with the bundled predictors."""

import re
import shutil

import pytest

sync_api = pytest.importorskip("playwright.sync_api")
NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((found for name in NAMES if (found := shutil.which(name))), None)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(NAMES)} here"),
]


@pytest.fixture
def loaded(trained):
    """In place of the roofline."""
    return trained


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(server, browser, light):
    """The page with a model chosen; nothing goes wrong in its scripts."""
    page, wrong = browser.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(server)
    page.set_input_files("[name=file]", light / "light_squeezenet.onnx")
    page.fill("[name=device]", "a100-pcie-80gb")
    yield page
    page.close()
    assert wrong == []


def estimate(page, name):
    """A metric in the table, once it is there."""
    row = page.locator("#metrics tr", has_text=name)
    return float(re.sub(r"[^\d.]", "", row.locator("td").nth(1).inner_text().split()[0]))


def predict(page):
    page.click("text=Predict")
    page.wait_for_selector("#sweep:enabled")


def test_a_model_is_answered_and_its_power_limits_are_drawn(page):
    predict(page)
    assert estimate(page, "latency_ms") > 0
    assert "fits: up to" in page.inner_text("#fits")
    page.click("#sweep")
    page.wait_for_selector("#picture svg")


def test_training_asks_for_an_optimizer_and_takes_more_memory(page):
    predict(page)
    inference = estimate(page, "peak_memory_mib")
    assert page.locator("[name=optimizer]").is_disabled()
    page.select_option("[name=phase]", "training")
    predict(page)
    assert estimate(page, "peak_memory_mib") > inference
    assert "what takes memory" in page.inner_text("#parts")


def test_a_power_limit_takes_time(page):
    page.fill("[name=batch_size]", "256")
    predict(page)
    free = estimate(page, "latency_ms")
    page.fill("[name=power_limit_w]", "110")
    predict(page)
    assert estimate(page, "latency_ms") > free


def test_what_cannot_be_answered_is_said(page):
    page.fill("[name=device]", "abacus")
    page.click("text=Predict")
    page.wait_for_function("document.getElementById('fits').textContent")
    assert "abacus" in page.inner_text("#fits")
    assert page.locator("#sweep").is_disabled()
