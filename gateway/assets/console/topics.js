// @ts-check
// The list of topics: one row each, from one call. The node sorts and pages; only the shown rows are asked for again.
import { useEffect, useState } from "preact/hooks";
import { Action } from "./action.js";
import { curlOf } from "./contract.js";
import { DASH, ago, bytes, count, plural, rate, seconds } from "./format.js";
import { Empty, Facts, Page, Silent, State, Table, go, html, link, number } from "./parts.js";
import { useCall } from "./poll.js";

const ROWS = 50;

const COLUMNS = [
  { id: "name", head: "Topic", sort: true, class: "name", cell: (row) => html`<a href=${link("topics", row.topic)}>${row.topic}</a>` },
  { id: "records_in_per_s", head: "Records/s", isNumber: true, sort: true, cell: (row) => rate(row.records_in_per_s) },
  { id: "bytes_in_per_s", head: "Bytes/s in", isNumber: true, sort: true, priority: 2, cell: (row) => bytes(row.bytes_in_per_s) },
  { id: "log_bytes", head: "Stored", isNumber: true, sort: true, cell: (row) => bytes(row.log_bytes) },
  { id: "oldest", head: "Oldest record", isNumber: true, priority: 3, cell: (row) => (row.oldest_ms ? ago(row.oldest_ms) : DASH) },
  { ...number("partitions", "Partitions", count, 3), sort: false },
  { id: "in_sync", head: "In sync", priority: 2, cell: (row) => inSync(row) },
  { id: "tier_lag_s", head: "Tier lag", isNumber: true, sort: true, priority: 3, cell: (row) => (row.tier_lag_s ? seconds(row.tier_lag_s) : DASH) },
  { id: "lag_records", head: "Worst group lag", isNumber: true, sort: true, priority: 2, cell: (row) => row.lag_group
    ? html`${count(row.lag_records)} <a class="soft" href=${linkOfReader(row.lag_group)}>${row.lag_group.replace(/^push:/, "")}</a>` : DASH },
];

function linkOfReader(group) {
  return group.startsWith("push:") ? link("push", group.slice("push:".length)) : link("groups", group);
}

export function inSync(row) {
  if (row.led_partitions === undefined) return DASH;
  const led = row.partitions - row.led_partitions, behind = row.partitions - row.in_sync_partitions;
  if (led > 0) return html`<${State} kind="bad" word=${`${led} without leader`} />`;
  return behind > 0 ? html`<${State} kind="doubt" word=${`${behind} behind`} />` : html`<${State} kind="good" word="all" />`;
}

export default function Topics({ query }) {
  const sort = query.sort ?? "name";
  const request = { prefix: query.prefix, sort, after: query.after, limit: ROWS, include: "summary" };
  const poll = useCall("list_topics", { query: request });
  const [prefix, setPrefix] = useState(query.prefix ?? "");
  useEffect(() => setPrefix(query.prefix ?? ""), [query.prefix]);
  const move = (change) => go("topics", { prefix: query.prefix, sort: query.sort, ...change });
  const list = poll.data;
  return html`<${Page} title="Topics" poll=${poll} aside=${html`<${CreateTopic} onDone=${poll.reload} />`}>
    ${list && html`
      <form class="filters" onSubmit=${(event) => { event.preventDefault(); move({ prefix, after: "" }); }}>
        <label><span>Name begins with</span><input type="search" value=${prefix} autocomplete="off" spellcheck=${false} onInput=${(event) => setPrefix(event.target.value)} onChange=${() => move({ prefix, after: "" })} /></label>
        <p class="tally">${plural(list.total ?? list.topics.length, "topic")}${list.limited_to ? " that this token may read" : ""}</p>
      </form>
      <${Silent} nodes=${list.nodes_missing} />
      ${list.totals && html`<${Facts} items=${[["Records/s in", rate(list.totals.records_in_per_s)], ["Bytes/s in", bytes(list.totals.bytes_in_per_s)],
        ["Bytes/s out", bytes(list.totals.bytes_out_per_s)], ["Stored", bytes(list.totals.log_bytes)],
        ["Group lag", count(list.totals.lag_records), list.totals.lag_records ? "" : "soft"]]} />`}
      <${Table} caption="Topics" columns=${COLUMNS} rows=${list.topics} keyOf=${(row) => row.topic}
        sort=${{ by: sort === "name" ? "name" : `-${sort}`, onSort: (by) => move({ sort: by.replace(/^-/, ""), after: "" }) }}
        empty=${query.prefix ? `No topic begins with ${query.prefix}.` : html`<${Empty} title="No topic yet" curl=${curlOf("create_topic", { names: { topic: "rides" }, body: { partitions: 4 } })}>A topic is a named set of partitions. Producers append records to it, consumers read them by position.<//>`} />
      <p class="pager">${query.after && html`<a href=${link("topics", { prefix: query.prefix, sort: query.sort })}>First page</a>`}
        ${list.next && html`<a href=${link("topics", { prefix: query.prefix, sort: query.sort, after: list.next })}>Next ${ROWS}</a>`}</p>`}
  <//>`;
}

function CreateTopic({ onDone }) {
  return html`<${Action} label="Create topic" title="Create a topic" right=${["create", "topic", null]} name="create_topic" onDone=${onDone}
    fields=${[{ id: "topic", label: "Name", isNeeded: true, example: "rides" }, { id: "partitions", label: "Partitions", value: "4", note: "More can be added later; fewer cannot." },
      { id: "replication_factor", label: "Replicas of each", value: "", note: "Empty: the default of the cluster." }]}
    request=${(form) => ({ names: { topic: required(form.topic, "a name") }, body: { partitions: whole(form.partitions, "partitions"), ...(form.replication_factor ? { replication_factor: whole(form.replication_factor, "replicas") } : {}) } })}
    effect=${(form) => `Creates the topic ${form.topic} with ${plural(Number(form.partitions), "partition")}. It has no records.`} />`;
}

export function required(text, what) {
  if (!text.trim()) throw new Error(`Give ${what}.`);
  return text.trim();
}

export function whole(text, what) {
  if (!/^\d+$/.test(String(text).trim())) throw new Error(`Give a whole number of ${what}.`);
  return Number(text);
}
