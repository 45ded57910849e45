// @ts-check
// Ingestion jobs, from what their runs registered in the store: how fresh their tables are, and what they lost.
import { DASH, ago, bytes, count, plural, seconds } from "./format.js";
import { Empty, Facts, Page, Spark, State, Table, Time, html, link, number } from "./parts.js";
import { useCall } from "./poll.js";

const BEHIND_S = 2 * 3600; // twice what a job runs in usually
const last = (job) => job.commits?.at(-1);
const sum = (job, name) => (job.commits ?? []).reduce((total, commit) => total + commit[name], 0);
const wrong = (value) => (value ? html`<${State} kind="doubt" word=${count(value)} />` : "0");

function stateOf(job) {
  if (!job.readable) return html`<${State} kind="bad" word="not readable" />`;
  if (job.held.length) return html`<${State} kind="bad" word=${plural(job.held.length, "topic held", "topics held")} />`;
  return job.lag_s > BEHIND_S ? html`<${State} kind="doubt" word="behind" />` : html`<${State} kind="good" word="up to date" />`;
}

export default function Jobs({ names: [id] }) {
  const poll = useCall("list_jobs", { query: { limit: 100 } }, { isRepeated: false }); // each answer reads a record of each partition
  const job = poll.data?.jobs.find((row) => row.id === id);
  if (id !== undefined) {
    return html`<${Page} title=${job?.job ?? id} kicker=${html`<a href=${link("ingestion")}>Ingestion</a>`} poll=${poll} aside=${job && stateOf(job)}>${job?.readable ? html`<${Job} job=${job} />` : html`<p>No job has this name, or its registration cannot be read.</p>`}<//>`;
  }
  return html`<${Page} title="Ingestion" poll=${poll}>${poll.data && html`<${Table} caption="Ingestion jobs" rows=${poll.data.jobs} keyOf=${(row) => row.id} columns=${[
    { id: "job", head: "Job", class: "name", cell: (row) => html`<a href=${link("ingestion", row.id)}>${row.job ?? row.id}</a>` },
    { id: "state", head: "State", cell: stateOf },
    number("lag_s", "Freshness", seconds),
    number("lag_records", "To do, records", count, 2),
    { id: "last", head: "Last commit", isNumber: true, priority: 2, cell: (row) => (last(row) ? ago(last(row).committed_ms) : DASH) },
    { id: "rows", head: "Rows by commit", class: "trend", priority: 3, cell: (row) => html`<${Spark} points=${row.commits?.map((commit) => commit.rows) ?? []} label=${`Rows of the last ${row.commits?.length ?? 0} commits`} />` },
    number("lost_records", "Lost", wrong),
    number("misfits", "Misfits", wrong, 2),
    { id: "small", head: "Small files", isNumber: true, priority: 3, cell: (row) => `${count(sum(row, "small_files"))} of ${count(sum(row, "files"))}` },
  ]} empty=${html`<${Empty} title="No job yet" curl="penstock ingest run --store s3://log --output s3://lake --job hourly">A job writes topics into tables of Parquet, and registers what it has done in the store of the topics.<//>`} />
  ${poll.data.next && html`<p class="soft">The first 100 are shown.</p>`}`}<//>`;
}

function Job({ job }) {
  return html`<${Facts} items=${[["Freshness", seconds(job.lag_s)], ["To do, records", count(job.lag_records)], ["Lost records", count(job.lost_records)], ["Misfits", count(job.misfits)],
      ["Dead letters", count(sum(job, "dead_letters"))], ["Small files", `${count(sum(job, "small_files"))} of ${count(sum(job, "files"))}`], ["Registered", ago(job.renewed_ms)]]} />
    ${job.held.length > 0 && html`<div class="problem"><p><b>Held topics</b></p><p>Their last plan has failed: ${job.held.join(", ")}. <code>penstock ingest status --job ${job.job}</code> has the reason.</p></div>`}
    <p>Writes to <span class="data">${job.output}</span>${job.topics.length ? ", reads " : ""}${job.topics.map((topic, place) => html`${place ? ", " : ""}<a href=${link("topics", topic)}>${topic}</a>`)}.</p>
    <h2>Last commits</h2>
    <${Table} caption="Commits, newest first" rows=${[...job.commits].reverse()} keyOf=${(row) => row.number} empty="Its runs are of a release that does not register counts." columns=${[
      number("number", "Commit", String),
      { id: "at", head: "Time", class: "data nowrap", cell: (row) => html`<${Time} ms=${row.committed_ms} />` },
      number("rows", "Rows"),
      number("dead_letters", "Dead letters", wrong, 2),
      number("files", "Files", count, 2),
      number("small_files", "Below 64 MiB", count, 2),
      { id: "mean", head: "Mean file", isNumber: true, priority: 3, cell: (row) => (row.files ? bytes(row.size_bytes / row.files) : DASH) },
    ]} />`;
}
