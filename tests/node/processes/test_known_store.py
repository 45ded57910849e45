"""A node remembers the identity of its store, so that a start refuses an empty directory in its place."""

import asyncio
from pathlib import Path

import pytest

from engine.directory.data_directory import DataDirectory, Identity
from engine.errors import StartRefused
from engine.log.recovery import LastShutdown
from engine.runtime.disk import RealDisk
from engine.tiering.store.store import StoreUnusable
from gateway.settings import NodeSettings
from node.processes.process_parts import open_probed_store
from node.processes.server import running_node


def directory_at(path: Path) -> DataDirectory:
    path.mkdir(exist_ok=True)
    return DataDirectory(RealDisk(), str(path), Identity("c", 0), last_shutdown=LastShutdown.CLEAN)


def test_a_start_without_the_mount_is_refused_and_leaves_the_mount_point_empty(tmp_path):
    """Two starts: the refused one must not make the next one succeed."""
    url, elsewhere = (tmp_path / "store").as_uri(), tmp_path / "elsewhere"
    _, identity = open_probed_store(url, directory_at(tmp_path / "data"))
    (tmp_path / "store").rename(elsewhere)
    for _ in range(2):
        with pytest.raises(StoreUnusable) as raised:
            open_probed_store(url, directory_at(tmp_path / "data"))
        hint = f"mount its file system, or remove {tmp_path}/data/store-identities to take it as it is"
        assert raised.value.hint == hint
        assert not (tmp_path / "store").exists()
    elsewhere.rename(tmp_path / "store")
    assert open_probed_store(url, directory_at(tmp_path / "data"))[1] == identity


def test_another_store_is_another_url_and_the_first_one_stays_remembered(tmp_path):
    data = directory_at(tmp_path / "data")
    identities = {open_probed_store((tmp_path / name).as_uri(), data)[1] for name in ("a b", "b")}
    assert len(identities) == 2
    (tmp_path / "a b").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnusable):
        open_probed_store((tmp_path / "a b").as_uri(), data)


def test_a_data_directory_moves_with_the_store_inside_it(tmp_path):
    data = directory_at(tmp_path / "data")
    _, identity = open_probed_store((tmp_path / "data" / "store").as_uri(), data)
    (tmp_path / "data").rename(tmp_path / "moved")
    (tmp_path / "moved" / "store").rename(tmp_path / "aside")
    with pytest.raises(StoreUnusable):
        open_probed_store((tmp_path / "moved" / "store").as_uri(), directory_at(tmp_path / "moved"))
    (tmp_path / "aside").rename(tmp_path / "moved" / "store")
    assert open_probed_store((tmp_path / "moved" / "store").as_uri(), directory_at(tmp_path / "moved"))[1] == identity


def test_a_file_of_identities_that_cannot_be_read_refuses_the_start(tmp_path):
    (tmp_path / "data" / "store-identities").mkdir(parents=True)
    with pytest.raises(StartRefused, match="cannot be used"):
        open_probed_store((tmp_path / "store").as_uri(), directory_at(tmp_path / "data"))


async def test_a_node_refuses_to_start_without_its_store(tmp_path):
    settings = NodeSettings(data_dir=str(tmp_path / "data"), store=(tmp_path / "store").as_uri())
    async with asyncio.timeout(60), running_node(settings):
        pass
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreUnusable, match="mount its file system"):
        async with running_node(settings):
            pass


def test_a_damaged_file_of_identities_is_said(tmp_path, caplog):
    url = (tmp_path / "store").as_uri()
    open_probed_store(url, directory_at(tmp_path / "data"))
    with (tmp_path / "data" / "store-identities").open("ab") as file:
        file.write(b"more\n")
    open_probed_store(url, directory_at(tmp_path / "data"))
    assert "the identities of stores are damaged: check that file:// stores are mounted" in caplog.messages
