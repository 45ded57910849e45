"""The shell of the console, its content security policy, and its files as they are sent.

The shell is the same for every caller: it holds no data and no address, and its paths are relative, so that it works
behind a prefix. A file is under the name of the build, so that a browser may keep it permanently. Invariant: the policy
allows scripts of the node alone and nothing inline but the import map.
"""

import json
from functools import cache
from html import escape

from gateway.assets.files import asset_bytes, build_name, hash_source
from gateway.assets.packed import ASK_EACH_TIME, Packed, pack_file

MODULES = {"preact": "preact.mjs", "preact/hooks": "hooks.mjs", "htm": "htm.module.js", "uplot": "uPlot.esm.js"}
STYLES = ("tokens.css", "console.css")
TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "mjs": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
    "json": "application/json",
}
KEPT_FOREVER = "public, max-age=31536000, immutable"


@cache
def shell(version: str) -> Packed:
    """Returns the shell for this version of the product."""
    text = _shell_text(version)
    headers = {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": content_security_policy(),
        "ETag": f'"{build_name()}-{version}"',
        **ASK_EACH_TIME,
    }
    return pack_file(text.encode(), headers)


@cache
def console_file(name: str) -> Packed:
    """Returns a file that the shell may load. Raises KeyError."""
    headers = {"Content-Type": TYPES[name.rpartition(".")[2]], "Vary": "Accept-Encoding"}
    return pack_file(asset_bytes(name), headers)


@cache
def content_security_policy() -> str:
    rules = {
        "default-src": "'none'",
        "script-src": f"'self' {hash_source(_import_map())}",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _address(name: str) -> str:
    return f"./assets/{build_name()}/{name}"


@cache
def _import_map() -> str:
    return json.dumps({"imports": {module: _address(name) for module, name in MODULES.items()}})


def _shell_text(version: str) -> str:
    # A browser would see that it needs a module only when it has read the one before.
    first = ["app.js", *MODULES.values()]
    styles = "\n".join(f'<link rel="stylesheet" href="{_address(name)}">' for name in STYLES)
    preloads = "\n".join(f'<link rel="modulepreload" href="{_address(name)}">' for name in first if "uPlot" not in name)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="penstock-version" content="{escape(version)}">
<title>Penstock</title>
<link rel="icon" href="{_address("mark.svg")}">
{styles}
<script type="importmap">{_import_map()}</script>
{preloads}
<script type="module" src="{_address("app.js")}"></script>
</head>
<body>
<noscript>
<p>The console needs JavaScript. <a href="docs">The contract</a> does not,
and <a href="v1">v1</a> has the paths for programs.</p>
</noscript>
</body>
</html>
"""
