// @ts-check
// One topic: its partitions, groups, settings and tiering. Records have a module of their own.
import { Action, Missing } from "./action.js";
import { call } from "./contract.js";
import { DASH, ago, bytes, count, duration, plural, rate, seconds } from "./format.js";
import { GROUP_COLUMNS } from "./groups.js";
import { HistoryPlot } from "./history.js";
import { Facts, Page, Silent, State, Table, Tabs, Unknown, go, html, link, number, sorted } from "./parts.js";
import { useCall, usePoll } from "./poll.js";
import { inSync, whole } from "./topics.js";

export function topicTabs(name, chosen) {
  return html`<${Tabs} label="Parts of the topic" chosen=${chosen} tabs=${[["Records", link("topics", name)], ["Summary", link("topics", name, "summary")], ["Partitions", link("topics", name, "partitions")],
    ["Settings", link("topics", name, "settings")], ["Tiering", link("topics", name, "tiering")]]} />`;
}

export const sum = (rows, of) => rows.reduce((total, row) => total + Number(of(row) ?? 0), 0);
export const retained = (partition) => (partition.log_end === null ? null : partition.high_watermark - partition.log_start);

export default function Topic({ names: [name, tab] }) {
  const View = { summary: Summary, partitions: Partitions, settings: Settings, tiering: Tiering }[tab];
  return View ? html`<${View} name=${name} />` : html`<${Unknown} />`;
}

function Shell({ name, tab, poll, aside = null, children }) {
  return html`<${Page} title=${name} kicker=${html`<a href=${link("topics")}>Topics</a>`} poll=${poll} aside=${aside}>${topicTabs(name, tab)}${poll.data && children}<//>`;
}

function Partitions({ name }) {
  const poll = useCall("describe_topic", { names: { topic: name } });
  const topic = poll.data, right = ["alter", "topic", name];
  const columns = [
    { id: "partition", head: "Partition", isNumber: true, sort: (row) => row.partition, cell: (row) => html`<a href=${link("topics", name, { partition: row.partition })}>${row.partition}</a>` },
    { id: "leader", head: "Leader", cell: (row) => (row.leader === null ? html`<${State} kind="bad" word="none" />` : `node ${row.leader}`) },
    { id: "sync", head: "In sync", cell: (row) => html`<${InSync} row=${row} />` },
    number("log_start", "Start", count, 2),
    number("high_watermark", "High watermark", count, 2),
    { id: "records", head: "Offsets held", isNumber: true, sort: retained, cell: (row) => count(retained(row)) },
    number("size_bytes", "On disk", bytes),
    number("segments", "Segments", count, 3),
    number("leader_epoch", "Epoch", count, 3),
  ];
  return html`<${Shell} name=${name} tab="Partitions" poll=${poll}>${topic && html`
    <${Facts} items=${[["Partitions", count(topic.partitions.length)], ["Replicas", count(topic.replication_factor)], ["Offsets held", count(sum(topic.partitions, retained))],
      ["On disk", bytes(sum(topic.partitions, (row) => row.size_bytes))], ["Under-replicated", count(topic.partitions.filter((row) => row.under_replicated).length)]]} />
    <${Table} caption="Partitions" columns=${columns} rows=${topic.partitions} keyOf=${(row) => row.partition} />
    <${Missing} right=${right} what="Changing partitions" />
    <div class="actions">
      <${Action} label="Add partitions" right=${right} name="alter_topic" onDone=${poll.reload}
        fields=${[{ id: "partitions", label: "Partitions", value: String(topic.partitions.length + 1) }]}
        request=${(form) => ({ names: { topic: name }, body: { partitions: moreThan(form.partitions, topic.partitions.length) } })}
        effect=${(form) => [`Raises the partitions of ${name} from ${topic.partitions.length} to ${form.partitions}. They cannot be taken away again.`, "New records of a key may go to another partition than the old ones."]} />
      <${Action} label="Roll segments" right=${right} name="roll_topic" onDone=${poll.reload} request=${() => ({ names: { topic: name } })}
        effect=${() => `Closes the newest segment of ${plural(topic.partitions.length, "partition")}, so that it can be tiered. Nothing is lost.`} />
      <${Action} label="Delete records" title="Delete records of one partition" right=${right} name="delete_records" typed=${name} isBad onDone=${poll.reload}
        fields=${[{ id: "partition", label: "Partition", value: "0" }, { id: "before", label: "Delete all before offset", value: String(topic.partitions[0].log_start ?? 0) }]}
        request=${(form) => ({ names: { topic: name, partition: whole(form.partition, "a partition") }, query: { before: whole(form.before, "an offset") } })}
        effect=${(form) => {
          const row = topic.partitions[Number(form.partition)];
          if (!row) return `${name} has no partition ${form.partition}.`;
          const end = Math.min(Number(form.before), row.high_watermark);
          return `Deletes ${plural(Math.max(0, end - row.log_start), "offset")} of partition ${form.partition}: ${count(row.log_start)} to ${count(Math.max(row.log_start, end) - 1)}, from disk and store.`;
        }} />
    </div>`}<//>`;
}

function moreThan(text, present) {
  const number = whole(text, "partitions");
  if (number <= present) throw new Error(`Give more than ${present}.`);
  return number;
}

/** Not a set of ids only: each follower that lags, with how far. */
function InSync({ row }) {
  const behind = Object.entries(row.lag).filter(([, lag]) => lag > 0);
  const word = `${row.in_sync.length} of ${row.replicas.length}`;
  if (row.offline) return html`<${State} kind="bad" word=${row.offline} />`;
  return html`<${State} kind=${row.under_replicated ? "doubt" : "good"} word=${word} />${behind.length > 0 && html` <span class="soft">${behind
    .map(([node, lag]) => `node ${node} ${count(lag)} behind`).join(", ")}</span>`}`;
}

/** The numbers of the topic, its last hour, and who reads it. The names of a page begin with the topic's, which is its first. */
function Summary({ name }) {
  const poll = usePoll(async (signal) => {
    const [list, readers] = await Promise.all([call("list_topics", { query: { prefix: name, limit: 1, include: "summary" }, signal }), call("list_groups", { query: { topic: name }, signal })]);
    if (list.topics[0]?.topic !== name) await call("describe_topic", { names: { topic: name }, signal }); // it says what is wrong
    return { ...list.topics[0], nodes_missing: list.nodes_missing, groups: readers.groups };
  }, name);
  const topic = poll.data;
  return html`<${Shell} name=${name} tab="Summary" poll=${poll}>${topic && html`<${Silent} nodes=${topic.nodes_missing} />
    <${Facts} items=${[["Records/s in", rate(topic.records_in_per_s)], ["Bytes/s in", bytes(topic.bytes_in_per_s)], ["Bytes/s out", bytes(topic.bytes_out_per_s)], ["Stored", bytes(topic.log_bytes)],
      ["Oldest record", topic.oldest_ms ? ago(topic.oldest_ms) : DASH], ["Tier lag", topic.tier_lag_s ? seconds(topic.tier_lag_s) : DASH], ["In sync", inSync(topic)]]} />
    <${HistoryPlot} at=${poll.at} of=${{ topic: name }} series=${["records_in_per_s", "bytes_in_per_s", "bytes_out_per_s"]} />
    <h2>Groups that read it</h2>
    <${Table} caption=${`Groups that read ${name}`} rows=${sorted(topic.groups, GROUP_COLUMNS, "-lag_records")} keyOf=${(row) => row.group} columns=${GROUP_COLUMNS} empty="No group has a position in this topic, as far as this token may see." />`}<//>`;
}

export const POSITION_COLUMNS = [
  number("partition", "Partition", String),
  { id: "member", head: "Member", class: "name", sort: (row) => row.member_id, cell: (row) => row.member_id ?? DASH },
  { id: "offset", head: "Committed", isNumber: true, priority: 2, cell: (row) => (row.offset === null ? DASH : html`<a href=${link("topics", row.topic, { partition: row.partition, offset: row.offset })}>${count(row.offset)}</a>`) },
  number("high_watermark", "High watermark", count, 2),
  number("lag", "Lag, records"),
  number("lag_ms", "Lag, time", duration),
  number("lag_bytes", "Lag, bytes", bytes, 3),
];

function Settings({ name }) {
  const poll = useCall("describe_topic", { names: { topic: name } });
  const topic = poll.data, right = ["alter", "topic", name];
  const rows = topic ? Object.entries(topic.config) : [];
  return html`<${Shell} name=${name} tab="Settings" poll=${poll}>${topic && html`
    <${Table} caption="Settings of the topic" rows=${rows} keyOf=${([key]) => key} columns=${[
      { id: "name", head: "Setting", class: "word", cell: ([key]) => html`<code>${key.split("_").map((part, place) => (place ? html`_<wbr />${part}` : part))}</code>` },
      { id: "value", head: "Value", isNumber: true, cell: ([, value]) => html`<code>${JSON.stringify(value)}</code>` },
      { id: "human", head: "That is", isNumber: true, cell: ([key, value]) => readable(key, value) },
      { id: "change", head: "Actions", class: "narrow", cell: ([key, value]) => html`<${Alter} ...${{ name, setting: key, value, right }} onDone=${poll.reload} />` },
    ]} />
    <${Missing} right=${right} what="Changing settings" />
    <p class="soft">Reasons and bounds of each setting are in <a href="docs#alter_topic">the API</a>.</p>
    <div class="actions"><${Action} label="Delete topic" right=${["delete", "topic", name]} name="delete_topic" typed=${name} isBad
      request=${() => ({ names: { topic: name } })} onDone=${() => go("topics")}
      effect=${() => `Deletes ${name} with ${plural(topic.partitions.length, "partition")}, ${count(sum(topic.partitions, retained))} offsets and ${bytes(sum(topic.partitions, (row) => row.size_bytes))} on each replica's disk, and its objects in the store.`} /></div>`}<//>`;
}

function readable(key, value) {
  if (value === null) return key.startsWith("retention") ? "without end" : "default";
  if (/_ms(_|$)/.test(key)) return duration(value);
  return /_bytes/.test(key) ? bytes(value) : "";
}

function Alter({ name, setting, value, right, onDone }) {
  return html`<${Action} label="Change" title=${`Change ${setting}`} right=${right} name="alter_topic" onDone=${onDone}
    fields=${[{ id: "value", label: setting, value: JSON.stringify(value), note: "As JSON: a number, true, a text in quotes, or null." }]}
    request=${(form) => ({ names: { topic: name }, body: { config: { [setting]: JSON.parse(form.value) } } })}
    effect=${(form) => `Changes ${setting} of ${name} from ${JSON.stringify(value)} to ${form.value}. ${/^retention|^local_retention/.test(setting) ? "Records beyond a shorter retention are deleted for ever." : ""}`} />`;
}

function Tiering({ name }) {
  const poll = useCall("tier_status", { names: { topic: name } });
  const tier = poll.data;
  return html`<${Shell} name=${name} tab="Tiering" poll=${poll}>${tier && html`
    <${Facts} items=${[["Store", tier.store ?? "none"], ["Objects", count(sum(tier.partitions, (row) => row.objects))], ["In the store", bytes(sum(tier.partitions, (row) => row.tiered_bytes))],
      ["Waiting", bytes(sum(tier.partitions, (row) => row.pending_bytes))]]} />
    <${Table} caption="Tiering by partition" rows=${tier.partitions} keyOf=${(row) => row.partition} columns=${[
      number("partition", "Partition", String),
      number("tiered_end", "In the store up to"),
      number("local_log_start", "On disk from", count, 2),
      number("objects", "Objects", count, 2),
      number("tiered_bytes", "Bytes", bytes),
      { id: "pending", head: "Waiting", isNumber: true, cell: (row) => (row.pending_segments ? `${row.pending_segments} · ${bytes(row.pending_bytes)}` : "0") },
      { id: "error", head: "Last error", cell: (row) => (row.last_error ? html`<${State} kind="bad" word=${row.last_error} />` : DASH) },
    ]} />`}<//>`;
}
