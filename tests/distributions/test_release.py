"""What `make release` decides: one version, notes that claim no release that there is not, the same bytes twice."""

import io
import tarfile
from pathlib import Path

import pytest

from tests.distributions.environments import ROOT
from tests.distributions.release import NotReleasable, compare, judge_platform, notes, repacked, version_of


def test_this_tree_has_one_version_and_a_section_of_it() -> None:
    assert f"\n## {version_of(ROOT)}" in (ROOT / "CHANGELOG.md").read_text()


def test_several_versions_are_no_release(tmp_path: Path) -> None:
    for folder in (".", "penstock", "penstock_codec"):
        text = (ROOT / folder / "pyproject.toml").read_text()
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "pyproject.toml").write_text(text)
    assert version_of(tmp_path) == version_of(ROOT)
    client = tmp_path / "penstock" / "pyproject.toml"
    client.write_text(client.read_text().replace(f'version = "{version_of(ROOT)}"', 'version = "9.9.9"'))
    with pytest.raises(NotReleasable, match=r"several versions.*9\.9\.9"):
        version_of(tmp_path)


def test_notes_of_a_commit_with_unreleased_changes_say_that_it_is_no_release() -> None:
    released = "# Changelog\n\n## Unreleased\n\n## 0.2.0 - a date\n\n- Two.\n\n## 0.1.0\n\n- One.\n"
    assert notes(released, "0.2.0", "abc") == "# Penstock 0.2.0\n\nBuilt from commit abc.\n\n- Two.\n"
    changed = notes(released.replace("Unreleased\n", "Unreleased\n\n- Three.\n"), "0.2.0", "abc")
    assert "not a release" in changed
    assert "- Three." in changed
    assert "- Two." not in changed


def test_an_archive_has_no_order_owner_or_time_of_its_machine() -> None:
    def archive(names: list[str], owner: str, seconds: int) -> bytes:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w:gz") as tar:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size, member.uname, member.mtime, member.mode = 3, owner, seconds, 0o600
                tar.addfile(member, io.BytesIO(b"abc"))
        return made.getvalue()

    one, other = archive(["a", "b"], "me", 5), archive(["b", "a"], "you", 77)
    assert one != other
    assert repacked(one, 9) == repacked(other, 9)


def test_two_builds_that_differ_are_named(tmp_path: Path) -> None:
    for name, content in (("one", b"1"), ("other", b"1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "wheel").write_bytes(content)
    compare(tmp_path / "one", tmp_path / "other")
    (tmp_path / "other" / "wheel").write_bytes(b"2")
    (tmp_path / "other" / "more").touch()
    with pytest.raises(NotReleasable, match="differ: more, wheel"):
        compare(tmp_path / "one", tmp_path / "other")


def test_a_wheel_of_which_auditwheel_says_another_platform_is_no_release(tmp_path: Path) -> None:
    (tmp_path / "penstock_codec-0.1.0-cp311-abi3-manylinux_2_17_x86_64.whl").touch()
    with pytest.raises(NotReleasable, match="auditwheel does not say"):
        judge_platform(tmp_path, "true", "manylinux_2_17_x86_64")
    judge_platform(tmp_path, "false", "linux_x86_64")
