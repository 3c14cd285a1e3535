"""The pages in a real browser: Chromium without a screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from group_coordinator.pipeline.ui.app import Access
from tests.pipeline.offsets_log import Log, commit
from tests.pipeline.small import SmallCoordinator
from tests.pipeline.ui.asking import KEY
from tests.pipeline.ui.chromium import CHROMIUM, DRIVER, opened_chromium, served
from tests.pipeline.ui.many import write_groups
from tests.waiting import wait_until

GOLDEN = str(Path(__file__).parents[2] / "golden" / "0.1.0" / "root")
GROUPS = 100_000

pytestmark = [
    pytest.mark.long,
    # Selenium leaves its pipes to the collector of garbage.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None or DRIVER is None:
        pytest.fail("needs chromium and chromedriver on the PATH", pytrace=False)
    with opened_chromium() as browser:
        yield browser


def seen(browser: Any) -> str:
    return str(browser.execute_script("return document.body.innerText"))


def focused(browser: Any) -> str:
    return str(browser.execute_script("return document.activeElement.innerText"))


def press(browser: Any, *keys: str) -> None:
    ActionChains(browser).send_keys(*keys).perform()


def wait_for(browser: Any, text: str) -> None:
    wait_until(lambda: f"{text!r} is in {seen(browser)}", lambda: text in seen(browser))


def test_pages_show_what_they_should_and_the_browser_complains_of_nothing(chromium: Any) -> None:
    with served(GOLDEN) as address:
        for path in ("/", "/group?id=stable", "/changes", "/group?id=nobody"):
            chromium.get(address + path)
            assert len(chromium.find_elements("css selector", "h1")) == 1
            assert chromium.execute_script("return document.documentElement.lang") == "en"
            for table in chromium.find_elements("css selector", "table"):
                heads = table.find_elements("css selector", "thead th")
                assert {head.get_attribute("scope") for head in heads} == {"col"}
            unlabelled = "return [...document.querySelectorAll('input:not([type=hidden]), select')]"
            unlabelled += ".filter(each => each.labels.length === 0).length"
            assert chromium.execute_script(unlabelled) == 0
        chromium.get(f"{address}/group?id=stable")
        told = seen(chromium)
        assert "Generation 2" in told
        assert "leader" in told
    # The Content-Security-Policy refuses nothing that a page has; the last page is a 404.
    logged = [entry["message"] for entry in chromium.get_log("browser")]
    assert [line for line in logged if "404" not in line] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(chromium: Any, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    contrast = """
        const parse = (text) => text.match(/[0-9.]+/g).map(Number);
        const light = (rgb) => rgb.slice(0, 3).map((c) => c / 255)
          .map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
          .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const behind = (each) => {
          for (let at = each; at; at = at.parentElement) {
            const rgb = parse(getComputedStyle(at).backgroundColor);
            if (rgb.length < 4 || rgb[3] > 0) return rgb;
          }
          return [255, 255, 255];
        };
        const own = (each) => [...each.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
        return [...document.querySelectorAll("body *")].filter((e) => e.offsetParent && own(e))
          .map((each) => {
            const [a, b] = [light(parse(getComputedStyle(each).color)), light(behind(each))];
            const [high, low] = [Math.max(a, b), Math.min(a, b)];
            return [(high + 0.05) / (low + 0.05), each.className + " " + each.innerText];
          }).filter(([ratio]) => ratio < 4.5);
    """
    with served(GOLDEN) as address:
        for path in ("/", "/group?id=stable", "/changes"):
            chromium.get(address + path)
            assert chromium.execute_script(contrast) == []
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_hundred_thousand_groups_are_searched_paged_and_scrolled(
    chromium: Any, tmp_path: Path
) -> None:
    root = str(tmp_path)
    write_groups(root, GROUPS, 10)
    with served(root) as address:
        chromium.get(address)
        wait_for(chromium, "1 to 100 of 100,000")
        chromium.find_element("link text", "Last").click()
        wait_for(chromium, "99,901 to 100,000 of 100,000")
        assert "g-099999" in seen(chromium)
        chromium.execute_script("window.scrollTo(0, document.body.scrollHeight)")
        assert chromium.execute_script("return window.scrollY") > 1000
        field = chromium.find_element("id", "q")
        field.send_keys("G-04242")
        field.submit()
        wait_for(chromium, "1 to 10 of 10 found")
        chromium.find_element("link text", "g-042421").click()
        wait_for(chromium, "client-1")
        assert "topic-21 1, 3, 5, 7, 9" in seen(chromium)


def test_a_reset_asks_first(chromium: Any, root: str) -> None:
    Log(root).append(commit("g", 100, 5))
    coordinator = SmallCoordinator(root)
    try:
        with served(root, Access(KEY)) as address:
            chromium.get(f"{address}/?key={KEY}")
            assert "key" not in chromium.current_url
            chromium.get(f"{address}/group?id=g")
            chromium.find_element("partial link text", "Reset offsets").click()
            chromium.find_element("css selector", "#aim [value=to-offset]").click()
            chromium.find_element("id", "value").send_keys("7")
            chromium.find_element("css selector", "main button.strong").click()
            wait_for(chromium, "Nothing has been changed yet.")
            assert "-93" in seen(chromium)
            assert Log(root).read()[-1].offset_commit.offset == 100
            chromium.find_element("css selector", "button.danger").click()
            wait_for(chromium, "Done")
            assert sorted(each.offset_commit.offset for each in Log(root).read()) == [7, 100]
    finally:
        coordinator.stop()


def test_all_can_be_done_by_keyboard(chromium: Any) -> None:
    with served(GOLDEN) as address:
        chromium.get(address)
        press(chromium, Keys.TAB)
        assert focused(chromium) == "Skip to the content"
        outline = "return getComputedStyle(document.activeElement).outlineStyle"
        assert chromium.execute_script(outline) == "solid"
        press(chromium, Keys.ENTER)
        assert chromium.execute_script("return document.activeElement.id") == "main"
        for _ in range(40):
            press(chromium, Keys.TAB)
            if focused(chromium) == "stable":
                break
        press(chromium, Keys.ENTER)
        wait_for(chromium, "Generations and rebalances")
        assert "id=stable" in chromium.current_url


def test_a_page_becomes_newer_while_somebody_looks_and_keeps_the_focus(
    chromium: Any, root: str
) -> None:
    log = Log(root)
    log.append(commit("first", 1, 5))
    with served(root) as address:
        chromium.get(address)
        chromium.execute_script("document.querySelector('a[href*=\"id=first\"]').focus()")
        log.append(commit("second", 1, 6))
        wait_for(chromium, "second")
        assert focused(chromium) == "first"
        assert "1 to 2 of 2" in seen(chromium)


def test_without_javascript_pages_are_the_same(chromium: Any) -> None:
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        with served(GOLDEN) as address:
            chromium.get(f"{address}/?state=Stable")
            links = chromium.find_elements("css selector", "tbody a")
            assert {link.text for link in links} == {"stable", "two-step"}
            assert not chromium.find_element("id", "live").is_displayed()
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
