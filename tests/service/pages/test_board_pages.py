"""Leaderboard, devices, coverage and the reference of endpoints in a browser."""

import pytest

from tests.service.pages.harness import HEIGHT, check_everywhere, check_width

pytestmark = pytest.mark.browser
PAGES = {
    "leaderboard": "/leaderboard",
    "leaderboard-dataset": "/leaderboard?dataset=neusight&outcome=behind",
    "devices": "/devices",
    "device": "/devices/rtx-4090",
    "coverage": "/coverage?by=phase",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_holds_what_every_page_must(page_at, name):
    check_everywhere(page_at(PAGES[name]), name)


def test_all_datasets_are_on_the_first_screen_of_the_leaderboard(page_at):
    page = page_at("/leaderboard")
    lines = page.locator(".matrix tbody tr")
    assert lines.count() >= 10
    for width, height in [(1280, 800), (1920, 1080)]:
        page.set_viewport_size({"width": width, "height": height})
        box = lines.last.bounding_box()
        assert box["y"] + box["height"] <= height


def test_published_systems_and_baselines_are_counted_apart(page_at):
    lead = page_at("/leaderboard").inner_text("p.lead")
    assert "ahead of published systems in " in lead
    assert "ahead of baselines and simple rules in " in lead


def test_the_tasks_of_a_dataset_come_when_it_is_unfolded(page_at):
    page = page_at("/leaderboard")
    assert page.locator("#neusight table").count() == 0
    page.click(".matrix >> text=neusight")
    page.wait_for_selector("#neusight tbody tr.entries", state="attached")
    button = page.locator("#neusight button.more").first
    entries = page.locator("#neusight tr.entries").first
    assert not entries.is_visible()
    button.click()
    assert entries.is_visible() and "forerun evaluate neusight" in entries.inner_text()
    assert button.get_attribute("aria-expanded") == "true"


def test_filters_leave_what_fits_and_stand_in_the_address(page_at):
    page = page_at("/leaderboard?dataset=neusight")
    page.wait_for_selector("#neusight tbody tr.entries", state="attached")
    assert page.locator("details.fold:visible").count() == 1
    every = page.locator("#neusight table.board[data-sortable] tbody:visible").count()
    page.select_option("[name=outcome]", "behind")
    page.wait_for_url(lambda address: "outcome=behind" in address)
    behind = page.locator("#neusight table.board[data-sortable] tbody:visible")
    assert 0 < behind.count() < every
    assert all("behind" in text for text in behind.all_inner_texts())
    page.click("text=Show all")
    page.wait_for_url(lambda address: "?" not in address)
    assert page.locator("details.fold:visible").count() > 1


def test_tasks_are_sorted_by_a_heading_and_back(page_at):
    page = page_at("/leaderboard/neusight")
    errors = "[...document.querySelectorAll('table[data-sortable] tbody')]"
    errors += ".map(b => +b.rows[0].cells[4].dataset.value).filter(v => v)"
    heading = "table[data-sortable] > thead th:has-text('forerun') >> nth=0"
    page.click(heading)
    assert page.evaluate(errors) == sorted(page.evaluate(errors))
    page.click(heading)
    assert page.evaluate(errors) == sorted(page.evaluate(errors), reverse=True)


def test_devices_are_found_by_name_and_kind(page_at):
    page = page_at("/devices")
    page.fill("[name=text]", "4090")
    rows = page.locator("tbody tr:visible")
    assert rows.count() == 1
    page.fill("[name=text]", "")
    page.select_option("[name=kind]", "cpu")
    assert 0 < rows.count() < page.locator("tbody tr").count()


def test_the_map_changes_with_a_choice_and_its_address_shows_the_same(page_at):
    page = page_at("/coverage")
    page.select_option("[name=by]", "precision")
    page.wait_for_selector("#map th:has-text('amp')")
    page.wait_for_url(lambda address: "by=precision" in address)
    again = page_at(page.url.partition("/coverage")[1] + page.url.partition("/coverage")[2])
    assert again.inner_text("#map") == page.inner_text("#map")


def test_the_reference_of_endpoints_needs_no_other_host(page_at):
    page = page_at("/redoc", 390)
    assert page.url.endswith("/docs")
    page.wait_for_selector("#endpoints :text('/v1/predict') >> nth=0", state="attached")
    check_width(page)
    page.set_viewport_size({"width": 1280, "height": HEIGHT})
    check_width(page)


def test_pages_are_read_without_scripts(page_at):
    assert page_at("/leaderboard", scripts=False).locator("a >> text=The tasks of").count() > 5
    assert page_at("/leaderboard/neusight", scripts=False).is_visible("tr.entries >> nth=0")
    assert page_at("/devices", scripts=False).locator("tbody tr").count() > 100
    assert page_at("/coverage?by=metric", scripts=False).is_visible("#map table")
