"""The console of a running node: its page, its files, and the headers that keep other origins out."""

import re

ISOLATED = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
HTML = {"Accept": "text/html"}


async def test_the_page_the_docs_and_the_files_are_isolated(gateway):
    shell = await gateway.send("GET", "/", headers=HTML)
    (script,) = re.findall(r'<script type="module" src="\./([^"]+)"', shell.body.decode())
    for path, headers in (("/", HTML), ("/docs", {}), ("/docs/start", {}), (f"/{script}", {})):
        answer = await gateway.send("GET", path, headers=headers)
        assert {name: answer.headers[name] for name in ISOLATED} == ISOLATED, path
    assert "script-src 'self' 'sha256-" in shell.headers["Content-Security-Policy"]


async def test_a_browser_asks_for_the_page_each_time_and_keeps_its_files(gateway):
    shell = await gateway.send("GET", "/", headers=HTML)
    assert shell.headers["Cache-Control"] == "no-cache"
    again = await gateway.send("GET", "/", headers=HTML | {"If-None-Match": shell.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    (script,) = re.findall(r'<script type="module" src="\./([^"]+)"', shell.body.decode())
    answer = await gateway.send("GET", f"/{script}", headers={"Accept-Encoding": "gzip, deflate"})
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Encoding"] == "gzip"


async def test_a_file_of_another_build_is_answered_and_not_kept(gateway):
    answer = await gateway.send("GET", "/assets/0123456789abcdef/app.js")
    assert (answer.status, answer.headers["Cache-Control"]) == (200, "no-store")
    missing = await gateway.send("GET", "/assets/0123456789abcdef/..%2Fsecret")
    assert (missing.status, missing.json["code"]) == (404, "not_found")


async def test_modules_are_answered_behind_a_proxy_that_changes_the_host_and_no_other_origin_may_read_them(gateway):
    answer = await gateway.send("GET", "/assets/x/app.js", headers={"Origin": "https://proxy.example"})
    assert answer.status == 200
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert (await gateway.send("GET", "/v1/topics", headers={"Origin": "https://proxy.example"})).status == 403
