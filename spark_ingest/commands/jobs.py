"""`penstock ingest jobs` and `unregister`: which jobs the store keeps records for (docs/ingest-operate.md)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.failures import ExitCode, Failure
from penstock.cli.output import Column, print_json, print_note, print_table
from spark_ingest.options import JobName, cluster_option, json_option, store_option

if TYPE_CHECKING:
    from spark_ingest.protocol.registration import Listed


@click.command()
@store_option
@cluster_option
@json_option
def jobs(store: str, cluster: str | None, as_json: bool) -> None:
    """List the registered jobs: topics with retention_waits_for_jobs keep what these have not committed.

    A job registers itself when it runs. One that no longer runs holds records for at most retention_wait_max_ms;
    unregister releases them at once.
    """
    from spark_ingest.output.stores import open_source_store
    from spark_ingest.protocol.registration import registrations
    from spark_ingest.source.discovery import resolve_cluster

    source = open_source_store(store)
    cluster = resolve_cluster(source, cluster)
    rows = [_row(registration) for registration in registrations(source, cluster)]
    if as_json:
        print_json(
            {
                "cluster": cluster,
                "jobs": [row for row in rows if "problem" not in row],
                "not_understood": [row for row in rows if "problem" in row],
            }
        )
        return
    print_table(
        [Column(name, is_text=True) for name in ("job", "id", "output", "last run")] + [Column("topics")],
        [
            (row["job"], row["job_id"], row["output"], row["renewed"], len(row["topics"]))
            for row in rows
            if "problem" not in row
        ],
    )
    for row in rows:
        if "problem" in row:
            print_note(f"{row['key']}: {row['problem']}")


@click.command()
@store_option
@cluster_option
@click.option("--job", "job_name", type=JobName(), required=True, help="Name of the job.")
@click.option("--id", "job_id", help="Its id in `penstock ingest jobs`, if jobs of this name have several outputs.")
@json_option
def unregister(store: str, cluster: str | None, job_name: str, job_id: str | None, as_json: bool) -> None:
    """Remove a job's registration: retention no longer waits for it. Its next run registers it again.

    \f
    Raises Failure.
    """
    from spark_ingest.output.stores import open_source_store
    from spark_ingest.protocol.registration import registrations
    from spark_ingest.protocol.registration import unregister as remove
    from spark_ingest.source.discovery import resolve_cluster

    source = open_source_store(store)
    cluster = resolve_cluster(source, cluster)
    registered = [
        registration.registration for registration in registrations(source, cluster) if registration.registration
    ]
    ids = [registration.job_id for registration in registered if registration.job == job_name]
    if job_id is None and len(ids) > 1:
        raise Failure(f"{len(ids)} jobs are named {job_name}: use --id with one of {', '.join(ids)}", ExitCode.USAGE)
    removed = remove(source, cluster, job_name, job_id)
    if not removed:
        raise Failure(f"no job {job_name} is registered in {source.url}", ExitCode.USAGE)
    if as_json:
        print_json({"job": job_name, "unregistered": [registration.job_id for registration in removed]})
    else:
        print_note(f"Job {job_name} is unregistered.")


def _row(listed: Listed) -> dict[str, Any]:
    renewed = datetime.fromtimestamp(listed.renewed_ms / 1000, UTC).isoformat(timespec="seconds")
    times = {"key": listed.key, "renewed_ms": listed.renewed_ms, "renewed": renewed}
    registration = listed.registration
    if registration is None:
        return {**times, "problem": listed.problem}
    topics = {
        name: {"topic_id": topic.topic_id, "ends": {str(number): end for number, end in topic.ends.items()}}
        for name, topic in registration.topics.items()
    }
    return {
        **times,
        "job": registration.job,
        "job_id": registration.job_id,
        "output": registration.output,
        "topics": topics,
    }
