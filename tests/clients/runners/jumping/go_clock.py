"""Makes the overlay with which Go's own time.Now jumps; its monotonic reading, by which Go measures, does not."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

NOW = "\tsec, nsec, mono := runtimeNow()\n\tif mono == 0 {"
JUMP = "\tsec, nsec, mono := runtimeNow()\n\tsec += 3600 * (mono/50_000_000%3 - 1)\n\tif mono == 0 {"


def jumping_go(directory: Path, other: str | None) -> Path:
    """Return the file for `go build -overlay`; it has the files of another overlay too."""
    root = subprocess.run(["go", "env", "GOROOT"], capture_output=True, check=True, text=True).stdout.strip()
    source = Path(root) / "src" / "time" / "time.go"
    text = source.read_text()
    assert NOW in text, "another release of Go: Now() reads the clock in another way"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "time.go").write_text(text.replace(NOW, JUMP))
    overlay = directory / "overlay.json"
    replaced = json.loads(Path(other).read_text())["Replace"] if other else {}
    overlay.write_text(json.dumps({"Replace": {**replaced, str(source): str(directory / "time.go")}}))
    return overlay
