// @ts-check
// Dead letters of the rows that are chosen, produced again to where they came from: what will happen first, and then
// what became of each. The keys of idempotency are those of `penstock group replay-dead-letters`: however often and by
// which way it is done, each is stored once.
import { useEffect, useState } from "preact/hooks";
import { call } from "./contract.js";
import { plural } from "./format.js";
import { Dialog, State, Table, html, link } from "./parts.js";
import { may } from "./rights.js";

const PREFIX = "dead-letter-", MAKERS = ["group", "subscription"];
const valuesOf = (row, name) => [row.headers[PREFIX + name] ?? []].flat();
const origin = (row, name) => valuesOf(row, name).at(-1);

export const isDeadLetter = (row) => origin(row, "topic") !== undefined && /^\d+$/.test(origin(row, "partition"));
export const placeOf = (row) => `${row.partition}:${row.offset}`;

export function Replay({ topic, rows, onClose }) {
  const [topics, setTopics] = useState(null);
  const [outcomes, setOutcomes] = useState({});
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    const names = [...new Set(rows.map((row) => origin(row, "topic")))];
    Promise.all(names.map((name) => call("describe_topic", { names: { topic: name } }).then((found) => [name, found], (problem) => [name, { problem }])))
      .then((found) => setTopics(Object.fromEntries(found)));
  }, []);
  const refusals = Object.fromEntries(topics ? rows.map((row) => [placeOf(row), refusalOf(row, topics[origin(row, "topic")])]) : []);
  const open = rows.filter((row) => topics && !refusals[placeOf(row)] && !outcomes[placeOf(row)]?.results);
  const run = async () => {
    setBusy(true);
    for (const row of open) {
      const outcome = await call("produce_to_partition", requestOf(topic, row)).catch((problem) => ({ problem }));
      setOutcomes((before) => ({ ...before, [placeOf(row)]: outcome }));
    }
    setBusy(false);
  };
  const stored = Object.values(outcomes).filter((outcome) => outcome.results).length, failed = Object.keys(outcomes).length - stored;
  return html`<${Dialog} title="Replay dead letters" isWide onClose=${onClose}><div class="record">
    <p class="context">on <b>${document.body.dataset.context}</b></p>
    <div class="effect" role="status">${!topics ? html`<p>Asking for the topics …</p>` : stored + failed > 0 ? html`<p>${plural(stored, "record")} stored, ${failed} refused.</p>`
      : html`<p>Produces ${plural(open.length, "record")} of ${rows.length} to the partitions that they came from, each once. The dead letters stay in ${topic}.</p>`}</div>
    <${Table} caption="Dead letters" rows=${rows} keyOf=${placeOf} columns=${[
      { id: "place", head: "Dead letter", class: "data nowrap", cell: placeOf },
      { id: "to", head: "To", class: "name", cell: (row) => `${origin(row, "topic")} ${origin(row, "partition")}` },
      { id: "why", head: "Reason", priority: 2, class: "wrap", cell: (row) => [origin(row, "reason"), origin(row, "error")].filter(Boolean).join(": ") },
      { id: "outcome", head: "Outcome", class: "wrap", cell: (row) => html`<${Outcome} refusal=${refusals[placeOf(row)]} outcome=${outcomes[placeOf(row)]} topic=${origin(row, "topic")} />` },
    ]} />
    <div class="buttons"><button type="button" onClick=${onClose}>${stored + failed ? "Close" : "Cancel"}</button>
      <button type="button" class="strong" disabled=${isBusy || !open.length} onClick=${run}>${isBusy ? "Sent …" : failed ? "Try again" : "Replay"}</button></div>
  </div><//>`;
}

function Outcome({ refusal, outcome, topic }) {
  if (refusal) return html`<${State} kind="doubt" word=${refusal} />`;
  if (!outcome) return "";
  if (outcome.problem) return html`<${State} kind="bad" word=${outcome.problem.message} />`;
  const [{ partition, base_offset: offset }] = outcome.results;
  return html`<${State} kind="good" word="stored" /> <a href=${link("topics", topic, { partition, offset, open: `${partition}:${offset}` })}>${partition}:${offset}</a>`;
}

/** Why a dead letter is not produced from here, or null. */
function refusalOf(row, target) {
  const name = origin(row, "topic"), ids = valuesOf(row, "topic-id");
  if (target.problem) return target.problem.message;
  if (!may("write", "topic", name)) return `takes write on ${name}`;
  if (ids.length && ids.length >= valuesOf(row, "topic").length && ids.at(-1) !== target.topic_id) return `${name} was deleted and created again since`;
  if (String(target.config.cleanup_policy).includes("compact")) return "a later record of its key may be there: use penstock group replay-dead-letters";
  return null;
}

/** The record as it was before it became a dead letter: without the headers of the last maker. */
function requestOf(topic, row) {
  const { key, key_base64, value_base64 } = row.raw, maker = MAKERS.filter((name) => valuesOf(row, name).length).at(-1) ?? "group";
  const depth = valuesOf(row, maker).length, many = valuesOf(row, "topic").length;
  const added = ["topic", "partition", "offset", "reason", "attempts", maker, ...(maker === "group" && valuesOf(row, "error").length === depth ? ["error"] : []), ...(valuesOf(row, "topic-id").length === many ? ["topic-id"] : [])].map((name) => PREFIX + name);
  const headers = Object.entries(row.headers).map(([name, value]) => [name, added.includes(name) ? [value].flat().slice(0, -1) : value]).filter(([, value]) => !Array.isArray(value) || value.length);
  return {
    names: { topic: origin(row, "topic"), partition: origin(row, "partition") },
    body: { records: [{ key, key_base64, ...(value_base64 === undefined ? { value: null } : { value_base64 }), headers: Object.fromEntries(headers) }] },
    headers: { "Idempotency-Key": `replay:${topic}:${row.partition}:${row.offset}:${row.timestamp}` },
  };
}
