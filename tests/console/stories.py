"""The stories of an operator in the console. Each takes a tab and a node."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from tests.console.browser import Tab
from tests.console.node import BIG, HOSTILE, Node

PAGES = (
    ("", "Overview"), ("#/topics", "Topics"), ("#/topics/rides", "rides"), ("#/topics/rides/partitions", "rides"),
    ("#/topics/rides/summary", "rides"), ("#/topics/rides/settings", "rides"), ("#/topics/rides/tiering", "rides"),
    ("#/topics/payments", "payments"), ("#/topics/rides?open=0:7", "rides"), ("#/groups", "Groups"),
    ("#/groups/billing", "billing"), ("#/groups/settlement", "settlement"), ("#/push", "Push"),
    ("#/push/invoices", "invoices"), ("#/cluster", "Cluster"), ("#/ingestion", "Ingestion"),
    ("#/ingestion/hourly-a1", "hourly"),
    ("#/audit", "Audit"), ("#/runbook/group_stuck", "PenstockGroupStuck"), ("#/topics/jobs.dead", "jobs.dead"),
    ("#/tenants", "Tenants"), ("#/tenants/acme", "acme"),
    ("#/access", "Access"), ("#/settings?all=1", "Settings"), ("#/nowhere", "No such page"), ("#/%", "No such page"),
    ("#/topics/rides/nothing", "No such page"), ("#/overview/more", "No such page"),
)  # fmt: skip


def press(tab: Tab, name: str, *, inside: str = "body") -> None:
    tab.page.locator(inside).get_by_role("button", name=re.compile(f"^{re.escape(name)}")).last.click()


def dialog_text(tab: Tab) -> str:
    return str(tab.page.locator("dialog").inner_text())


def confirm(tab: Tab, name: str) -> None:
    """Presses the button of the dialog and waits until it is closed."""
    tab.page.locator("dialog .buttons").get_by_role("button", name=name, exact=True).click()
    try:
        tab.page.wait_for_selector("dialog", state="detached", timeout=15_000)
    except Exception as error:
        raise AssertionError(dialog_text(tab)) from error


def story_numbers_are_shown_as_stored(tab: Tab, node: Node) -> None:
    tab.show("#/topics/rides?open=0:7", "rides")
    tab.page.wait_for_selector("dialog pre.value")
    assert str(BIG + 28) in dialog_text(tab)
    press(tab, "Bytes", inside="dialog .forms")
    assert "00000000  7b 22" in dialog_text(tab)


def story_hostile_text_is_text(tab: Tab, node: Node) -> None:
    tab.show("#/topics/payments", "payments")
    assert "not text" in tab.page.locator("table").inner_text()
    assert "tombstone" in tab.page.locator("table").inner_text()
    assert tab.page.locator("table b").count() == 0
    for name in ("..", "a%2Fb", "__proto__", HOSTILE[:20]):
        tab.page.goto(f"{tab.url}/#/topics/{quote(name, safe='')}")
        tab.page.wait_for_selector(".problem")


def story_a_record_is_found_by_key_with_the_keyboard(tab: Tab, node: Node) -> None:
    record = node.ask("GET", "/v1/topics/rides/partitions/2/records?offset=40&max_records=1")["records"][0]
    tab.show("#/topics/rides", "rides")
    tab.page.get_by_label("Filter").focus()
    tab.page.keyboard.type(f"key={record['key']}")
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("text=are searched")
    tab.page.get_by_role("button", name="2:40", exact=True).focus()
    tab.page.keyboard.press("Enter")
    tab.page.wait_for_selector("dialog pre.value")
    tab.page.keyboard.press("Escape")
    tab.page.wait_for_selector("dialog", state="detached")


def story_records_are_read_on_from_a_place(tab: Tab, node: Node) -> None:
    tab.show("#/topics/rides?partition=1&offset=10", "rides")
    assert tab.page.locator("tbody tr").first.inner_text().startswith("1:10")
    before = tab.page.locator("tbody tr").count()
    press(tab, "Next")
    tab.page.locator("tbody tr").nth(before).wait_for()


def story_a_record_is_produced_and_produced_again(tab: Tab, node: Node) -> None:
    tab.show("#/topics/clicks", "clicks")
    press(tab, "Produce")
    exact = f'{{"n": {BIG}, "m": 1.10}}'
    tab.page.locator("dialog textarea").fill(exact)
    tab.page.locator("dialog").get_by_label("Partition").fill("3")
    tab.page.locator("dialog button[type=submit]").click()
    tab.page.wait_for_selector("dialog >> text=Stored at")
    tab.page.locator("dialog a").first.click()
    tab.page.wait_for_selector("dialog pre.value")
    assert str(BIG) in dialog_text(tab)
    assert "1.10" in dialog_text(tab)
    press(tab, "Produce like this", inside="dialog")
    tab.page.wait_for_selector("dialog textarea")
    assert tab.page.locator("dialog textarea").input_value().replace(" ", "") == exact.replace(" ", "")


def story_a_live_view_shows_what_comes_and_pauses(tab: Tab, node: Node) -> None:
    tab.show("#/topics/clicks", "clicks")
    press(tab, "Live")
    tab.page.wait_for_selector(".live .good")
    tab.page.wait_for_timeout(500)
    node.ask("POST", "/v1/topics/clicks/records", {"records": [{"value": "first"}]})
    tab.page.wait_for_selector("td >> text=first")
    press(tab, "Pause")
    node.ask("POST", "/v1/topics/clicks/records", {"records": [{"value": "second"}]})
    tab.page.wait_for_timeout(1500)
    assert tab.page.locator("td >> text=second").count() == 0
    press(tab, "Go on")
    tab.page.wait_for_selector("td >> text=second")


def story_a_topic_is_made_altered_and_deleted(tab: Tab, node: Node) -> None:
    tab.show("#/topics", "Topics")
    press(tab, "Create topic")
    tab.page.locator("dialog").get_by_label("Name").fill("made.here")
    assert "4 partitions" in dialog_text(tab)
    assert "curl -sS -X PUT" in dialog_text(tab)
    confirm(tab, "Create topic")
    tab.show("#/topics/made.here/partitions", "made.here")
    press(tab, "Add partitions")
    confirm(tab, "Add partitions")
    assert len(node.ask("GET", "/v1/topics/made.here")["partitions"]) == 5
    tab.show("#/topics/made.here/settings", "made.here")
    tab.page.locator("tr", has_text="retention_ms").first.get_by_role("button").click()
    tab.page.locator("dialog input").first.fill("3600000")
    confirm(tab, "Change")
    assert node.ask("GET", "/v1/topics/made.here")["config"]["retention_ms"] == 3_600_000
    press(tab, "Delete topic")
    button = tab.page.locator("dialog button[type=submit]")
    assert button.is_disabled()
    tab.page.locator("dialog input").last.fill("made.here")
    confirm(tab, "Delete topic")
    assert "made.here" not in str(node.ask("GET", "/v1/topics"))


def story_a_refusal_is_shown_as_it_is(tab: Tab, node: Node) -> None:
    tab.show("#/topics", "Topics")
    press(tab, "Create topic")
    tab.page.locator("dialog").get_by_label("Name").fill("no/such name")
    tab.page.locator("dialog button[type=submit]").click()
    tab.page.wait_for_selector("dialog .problem >> text=invalid_topic_name")


def story_a_group_is_reset_after_its_plan(tab: Tab, node: Node) -> None:
    tab.show("#/groups/analytics", "analytics")
    press(tab, "Reset positions")
    tab.page.wait_for_selector("dialog .effect >> text=30 offsets are delivered again")
    confirm(tab, "Reset positions")
    offsets = node.ask("GET", "/v1/groups/analytics/offsets")["offsets"]
    assert [row["offset"] for row in offsets if row["partition"] == 0] == [0]


def story_a_subscription_is_paused_and_resumed(tab: Tab, node: Node) -> None:
    tab.show("#/push/invoices", "invoices")
    press(tab, "Pause")
    confirm(tab, "Pause")
    assert node.ask("GET", "/v1/subscriptions/invoices")["state"] == "paused"
    tab.page.get_by_role("button", name="Resume").click()
    confirm(tab, "Resume")


def story_dead_letters_are_replayed_and_what_fails_is_shown(tab: Tab, node: Node) -> None:
    before = node.ask("GET", "/v1/topics/jobs/partitions/0/records?from=earliest")["records"]
    tab.show("#/topics/jobs.dead", "jobs.dead")
    tab.page.get_by_label("Choose all dead letters").check()
    press(tab, "Replay 3")
    tab.page.wait_for_selector("dialog .effect >> text=Produces 2 records of 3")
    assert "was deleted and created again since" in dialog_text(tab)
    tab.page.locator("dialog .buttons").get_by_role("button", name="Replay", exact=True).click()
    tab.page.wait_for_selector("dialog .effect >> text=2 records stored, 0 refused")
    after = node.ask("GET", "/v1/topics/jobs/partitions/0/records?from=earliest")["records"]
    assert [row["value"] for row in after[len(before) :]] == [{"job": 1}, {"job": 2}]
    assert "dead-letter-topic" not in str(after[-1]["headers"])
    assert after[-1]["headers"] == {"trace": "b"}


def story_a_value_of_a_registry_names_its_schema(tab: Tab, node: Node) -> None:
    tab.show("#/topics/framed", "framed")
    assert "schema 42" in tab.page.locator("table").inner_text()
    press(tab, "0:0")
    tab.page.wait_for_selector("dialog pre.value >> text=AAAAACr/")
    assert "has no registry that decodes it" in dialog_text(tab)
    tab.page.keyboard.press("Escape")
    press(tab, "0:1")
    tab.page.wait_for_selector('dialog pre.value >> text="n": 1')
    tab.page.keyboard.press("Escape")
    press(tab, "0:2")
    tab.page.wait_for_selector('dialog pre.value >> text="id": 1')


def story_the_audit_trail_is_filtered_and_read_back(tab: Tab, node: Node) -> None:
    tab.show("#/audit?kind=change.ended", "Audit")
    first = tab.page.locator("tbody tr").count()
    assert first == 50
    press(tab, "Older")
    tab.page.locator("tbody tr").nth(first).wait_for()
    tab.page.get_by_label("Resource").fill("topic/payments")
    tab.page.locator("label", has_text="Event").locator("select").select_option("change.intended")
    press(tab, "Show", inside="main")
    tab.page.wait_for_selector("td >> text=partitions: 3")
    assert tab.page.locator("tbody tr").count() == 1


def story_a_finding_leads_to_its_runbook(tab: Tab, node: Node) -> None:
    tab.show("", "Overview")
    tab.page.get_by_role("link", name="group stuck").first.click()
    tab.page.wait_for_selector("h1:text-is('PenstockGroupStuck')")
    assert "There are records, and no member reads them." in tab.page.locator("main").inner_text()


def story_a_hidden_tab_asks_nothing(tab: Tab, node: Node) -> None:
    tab.show("#/topics", "Topics")
    before = len(tab.asked)
    tab.page.wait_for_timeout(11_000)
    assert 1 <= len(tab.asked) - before <= 3, "one poll in five seconds"
    assert {path for _, path in tab.asked[before:]} == {"/v1/topics"}
    tab.page.evaluate(
        "Object.defineProperty(document, 'hidden', {value: true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    before = len(tab.asked)
    tab.page.wait_for_timeout(11_000)
    assert tab.asked[before:] == []


STORIES: tuple[Any, ...] = tuple(value for name, value in globals().items() if name.startswith("story_"))
