// @ts-check
// The audit trail of a node, the newest events first: who changed what, and who was denied. A page is read when it is
// asked for and never again by itself, because reading it is a request that the trail may have.
import { useEffect, useState } from "preact/hooks";
import { call } from "./contract.js";
import { DASH, plural } from "./format.js";
import { Copy, Dialog, Page, Silent, State, Table, Time, go, html } from "./parts.js";
import { useCall } from "./poll.js";

const KINDS = ["change.intended", "change.ended", "denied", "refused", "limited", "superuser", "started"];
const TYPE = "penstock.audit.v1.";
const kindOf = (event) => event.type.slice(TYPE.length);

export default function Audit({ query }) {
  const cluster = useCall("describe_cluster", {}, { isRepeated: false });
  const ids = cluster.data?.nodes.map((node) => node.node_id).filter(Boolean) ?? [];
  const node = query.node ?? ids[0];
  return html`<${Page} title="Audit" poll=${cluster}>${node && html`<${Trail} key=${JSON.stringify([node, query])} ids=${ids} node=${node} query=${query} />`}<//>`;
}

function Trail({ ids, node, query }) {
  const [form, setForm] = useState({ kind: "", principal: "", resource: "", ...query, node });
  const [older, setOlder] = useState([]);
  const [opened, setOpened] = useState(null);
  const { kind, principal, resource } = query;
  const request = { names: { node_id: node }, query: { kind, principal, resource } };
  const poll = useCall("read_audit", request, { isRepeated: false });
  useEffect(() => setOlder([]), [poll.data]);
  const pages = poll.data ? [poll.data, ...older] : [], events = pages.flatMap((page) => page.events), next = pages.at(-1)?.next;
  const onOlder = async () => setOlder([...older, await call("read_audit", { ...request, query: { ...request.query, after: next } })]);
  const set = (id) => (event) => setForm({ ...form, [id]: event.target.value });
  const select = (id, label, words) => html`<label class="word"><span>${label}</span><select value=${form[id]} onChange=${set(id)}>${words.map((word) => html`<option key=${word} value=${word}>${word || "any"}</option>`)}</select></label>`;
  return html`<form class="filters" onSubmit=${(event) => { event.preventDefault(); go("audit", form); }}>
      ${select("node", "Node", ids)}${select("kind", "Event", ["", ...KINDS])}
      <label><span>Principal</span><input value=${form.principal} spellcheck=${false} placeholder="token:shop" onInput=${set("principal")} /></label>
      <label><span>Resource</span><input value=${form.resource} spellcheck=${false} placeholder="topic/orders" onInput=${set("resource")} /></label>
      <button type="submit">Show</button></form>
    <${Silent} nodes=${poll.data?.nodes_missing} />
    ${poll.problem && html`<div class="problem"><p>${poll.problem.message}</p></div>`}
    ${poll.data && html`<${Table} caption="Audit events, newest first" rows=${events} keyOf=${(event) => event.id} columns=${[
      { id: "time", head: "Time", class: "data nowrap", cell: (event) => html`<button type="button" class="open" title="Open the event" onClick=${() => setOpened(event)}><${Time} ms=${Date.parse(event.time)} /></button>` },
      { id: "kind", head: "Event", class: "nowrap", cell: (event) => html`<${State} kind=${stateOf(event)} word=${kindOf(event)} />` },
      { id: "who", head: "Principal", class: "word", priority: 2, cell: ({ data }) => data.principal ?? data.address ?? DASH },
      { id: "what", head: "Operation", class: "nowrap", priority: 2, cell: ({ data }) => data.operation ?? DASH },
      { id: "about", head: "Resource", class: "word", priority: 2, cell: (event) => event.subject ?? DASH },
      { id: "detail", head: "Detail", class: "clip", priority: 3, cell: (event) => html`<span title=${detailOf(event)}>${detailOf(event)}</span>` },
    ]} empty=${poll.data.recorded === false ? "This node records no trail: it has no tokens file, or --audit off." : next ? "Nothing here matches." : "Nothing in the trail matches."} />
    <p class="pager"><span role="status">${plural(events.length, "event")}</span>${next && html`<button type="button" onClick=${onOlder}>Older</button>`}</p>`}
    ${opened && html`<${Dialog} title=${`${kindOf(opened)} ${opened.subject ?? ""}`} isWide onClose=${() => setOpened(null)}><div class="record">
      <pre class="value" tabIndex="0" aria-label="Event">${JSON.stringify(opened, null, 2)}</pre><div class="buttons"><${Copy} text=${JSON.stringify(opened)} /></div></div><//>`}`;
}

function stateOf(event) {
  if (kindOf(event) === "change.ended") return event.data.outcome === "done" ? "good" : "bad";
  return { denied: "bad", refused: "bad", limited: "bad", superuser: "doubt" }[kindOf(event)] ?? "plain";
}

/** The difference of a change, or its outcome, or how often something was. */
function detailOf({ data }) {
  if (data.outcome) return [data.outcome, data.status, data.code].filter(Boolean).join(" ");
  if (data.count > 1) return `${data.count} times`;
  const before = data.before ?? {}, after = data.after ?? {};
  const changed = [...new Set([...Object.keys(before), ...Object.keys(after)])].filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
  return changed.slice(0, 4).map((name) => `${name}: ${data.before ? `${JSON.stringify(before[name]) ?? DASH} → ` : ""}${JSON.stringify(after[name]) ?? DASH}`).join("; ") || data.trail || "";
}
