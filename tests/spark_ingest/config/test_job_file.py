"""Job files: every mistake in one list with its line, sections of topics, and the run that they give."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.tiering.store.store import open_store
from spark_ingest.commands.run import run_command
from spark_ingest.config.choosing import TopicChoices
from spark_ingest.config.job_file import JobFile, read_job_file
from spark_ingest.config.job_settings import JOB_SETTINGS, parameters_of
from spark_ingest.config.job_topics import TOPIC_SETTINGS
from spark_ingest.decode.declared_columns import TYPES
from spark_ingest.errors import IngestRefused
from tests.spark_ingest.jobs import invoke, table_rows
from tests.spark_ingest.tiered import TieredLog, json_rows, row

HEAD = '[job]\nstore = "s"\noutput = "o"\ntopics = ".*"\n'


def written(folder: Path, text: str) -> Path:
    path = folder / "job.toml"
    path.write_text(text)
    return path


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(IngestRefused) as caught:
        read_job_file(written(folder, text))
    return [line.strip() for line in caught.value.detail.splitlines()[1:]]


def test_every_mistake_is_named_with_its_line_and_what_to_do(tmp_path: Path) -> None:
    text = """[job]
store = 5
topics = "("
task_bytes = 1
engine = "flink"
[defaults]
paylod = "json"
misfit_max_percent = true
[topics.flights]
columns = { amt = "text" }
[topics."r(d"]
event_time_unit = ""
[jobs]
"""
    assert mistakes(tmp_path, text) == [
        "line 1: job.output is missing; write output = …",
        "line 2: job.store is 5; write a text",
        "line 3: job.topics is not a regular expression: missing ), unterminated subpattern at position 0; correct it",
        "line 4: job.task_bytes is 1; write a whole number from 1,024 to 1,099,511,627,776",
        "line 5: job.engine is 'flink'; write one of: spark, local",
        "line 7: defaults.paylod is unknown; write payload",
        "line 8: defaults.misfit_max_percent is true; write a number from 0 to 100",
        f"line 10: topics.flights.columns 'amt' has the type 'text'; there are: {', '.join(TYPES)}",
        "line 11: topics.r(d is not a regular expression: missing ), unterminated subpattern at position 1; correct it",
        "line 12: topics.r(d.event_time_unit is ''; write one of: auto, s, ms, us, ns",
        "line 13: jobs is not a section; write [job], [defaults] or [topics.NAME]",
    ]


@pytest.mark.parametrize(
    ("text", "message"), [("a = ", "is not TOML"), ("x" * 100, "is not TOML"), ("job = 5", "job is a value")]
)
def test_what_is_not_a_job_file_is_refused_in_one_message(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(IngestRefused, match=message):
        read_job_file(written(tmp_path, text))


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IngestRefused, match="cannot be read: no such file"):
        read_job_file(tmp_path / "absent.toml")
    (tmp_path / "bytes").write_bytes(b"\xff")
    with pytest.raises(IngestRefused, match="is not UTF-8"):
        read_job_file(tmp_path / "bytes")


def test_the_section_of_a_topic_is_its_own_or_the_first_that_matches() -> None:
    file = JobFile({}, {}, {"web.*": {}, "w.*": {}, "web.a": {}})
    assert [file.section_of(topic) for topic in ("web.a", "webxa", "war", "other")] == ["web.a", "web.*", "w.*", None]


def test_a_section_overrides_options_and_these_override_defaults() -> None:
    file = JobFile({}, {"event_time": "ts", "payload": "raw"}, {"a": {"payload": "json", "columns": {"x": "bigint"}}})
    choices = TopicChoices(file, {"payload": "raw", "event_time": "at"}, {"a": {"y": "double"}})
    assert (choices("a").recipe.payload, choices("a").recipe.event_time) == ("json", "at")
    assert choices("a").columns == {"x": "bigint", "y": "double"}
    assert choices("b").recipe.payload == "raw"


def test_every_setting_of_a_job_gives_an_option_of_run() -> None:
    known = {one.name for one in run_command.params}
    given = parameters_of(dict.fromkeys(JOB_SETTINGS, 5))
    assert set(given) <= known, set(given) - known


def test_defaults_of_settings_are_those_of_the_options() -> None:
    defaults = {one.name: one.default for one in run_command.params}
    for setting in [*JOB_SETTINGS.values(), *TOPIC_SETTINGS.values()]:
        name = next(iter(parameters_of({setting.name: 5})), "")
        if setting.default not in (None, True, False) and name in defaults:
            assert defaults[name] == setting.default, setting.name


def test_every_setting_has_its_reason() -> None:
    assert [one.name for one in (*JOB_SETTINGS.values(), *TOPIC_SETTINGS.values()) if len(one.why.split()) < 4] == []


@pytest.mark.parametrize(
    ("section", "mistake"),
    [
        ('payload = "csv"', "topics.a names is missing; payload csv needs it"),
        ('payload = "flink"', "topics.a.payload is 'flink'; write one of: json, raw, csv"),
        ('names = ["x"]', "topics.a.names has no effect on payload json; remove it"),
        ('payload = "csv"\nnames = ["x", "x"]', "topics.a.names is empty or has a name twice"),
        ('payload = "regex"\npattern = "("', "topics.a payload regex: "),
        ('payload = "avro"\nregistry_url = "http://u:p@h"', "topics.a.registry_url has a password"),
        ('payload = "protobuf"\nmessage = "a"\ndescriptor_file = "absent"', "topics.a absent cannot be read: No such"),
        ('transforms = [{ do = "dorp" }]', "topics.a.transforms step 1: do is 'dorp'; write one of: rename, drop"),
        ('transforms = [{ do = "drop" }]', "topics.a.transforms step 1: members is missing"),
        ('transforms = [{ do = "drop", members = ["a"], b = 1 }]', "topics.a.transforms step 1: b is unknown"),
        ('payload = "raw"\ntransforms = [{ do = "drop", members = ["a"] }]', "topics.a.transforms has no effect"),
    ],
)
def test_settings_that_do_not_fit_together_are_mistakes(tmp_path: Path, section: str, mistake: str) -> None:
    [found] = mistakes(tmp_path, f"{HEAD}[topics.a]\n{section}\n")
    assert found.partition(": ")[2].startswith(mistake)


def test_a_job_of_a_file_chooses_by_topic(tmp_path: Path) -> None:
    source = open_store((tmp_path / "store").as_uri())
    TieredLog(source, "flights").add(0, [*json_rows(20), row(b'{"id":"x"}', 1)])
    TieredLog(source, "rides").add(0, [row(b"\x00not json", 1)])
    text = f"""[job]
store = "{tmp_path}/store"
output = "{tmp_path}/lake"
topics = "flights|rides"
engine = "local"
[topics.rides]
payload = "raw"
[topics.flights]
on_misfit = "keep"
columns = {{ id = "bigint" }}
"""
    path = written(tmp_path, text)
    assert invoke("check", str(path)).output.startswith(f"{path} is correct")
    done = CliRunner().invoke(run_command, ["--config", str(path), "--workers", "1"])
    assert done.exit_code == 0, done.output
    lake = open_store((tmp_path / "lake").as_uri())
    assert [one["_value"] for one in table_rows(lake, "rides")] == [b"\x00not json"]
    assert [one["_extra"] for one in table_rows(lake, "flights")][-1] == '{"id":"x"}'
    again = CliRunner().invoke(run_command, ["--config", str(path), "--exclude", "rides"])
    assert again.exit_code == 0
    assert "0 rows" in again.output


def test_a_topic_undoes_the_event_time_of_the_defaults(tmp_path: Path) -> None:
    text = f'{HEAD}[defaults]\nevent_time = "ts"\n[topics.plain]\nevent_time = ""\n'
    choices = TopicChoices(read_job_file(written(tmp_path, text)), {}, {})
    assert [choices(topic).recipe.event_time for topic in ("plain", "other")] == [None, "ts"]
