// @ts-check
// May X do Y: the node's own decision with the rule that made it. And the rules and quotas there are.
import { useState } from "preact/hooks";
import { call, curlOf } from "./contract.js";
import { bytes, count } from "./format.js";
import { Curl, Page, ProblemNote, State, Table, Time, column, html, number } from "./parts.js";
import { useCall } from "./poll.js";
import { currentMe, may } from "./rights.js";

const OPERATIONS = ["describe", "read", "write", "create", "alter", "delete", "operate", "metrics", "access"];
const RESOURCES = ["topic", "group", "subscription", "tenant", "cluster"];
const RIGHT = ["access", "cluster", ""];

export default function Access() {
  const me = currentMe();
  return html`<${Page} title="Access">
    <h2>You</h2><${Me} me=${me} />
    ${may(...RIGHT) ? html`<h2>May they do it?</h2><${Check} /><h2>Rules</h2><${Rules} /><h2>Quotas</h2><${Quotas} />` : html`<p class="missing">Rules, quotas and the question who may do what take <code>access</code> on cluster, which this token has not.</p>`}
  <//>`;
}

function Me({ me }) {
  if (!me) return html`<p>The node has not said who this is. Give a token.</p>`;
  if (me.superuser) return html`<p><code>${me.principal}</code> may do everything.</p>`;
  return html`<p><code>${me.principal}</code>${me.tenant ? html` of tenant <code>${me.tenant}</code>` : ""}</p>
    <${Table} caption="Your rights" rows=${byScope(me.rights)} keyOf=${(row) => row.resource + row.scope} empty="No rights." columns=${[
      { id: "resource", head: "On", cell: (row) => row.resource }, column("scope", "Whose name", { class: "wrap" }),
      { id: "operations", head: "Operations", class: "wrap", cell: (row) => row.operations.join(", ") }]} />`;
}

/** Rights with the same names in one row. */
function byScope(rights) {
  const rows = new Map();
  for (const { resource, operation, prefixes, names } of rights) {
    const scope = [...prefixes.map((prefix) => (prefix ? `begins with ${prefix}` : "is any")), ...names.map((name) => `is ${name}`)].join(", ");
    const key = `${resource}|${scope}`;
    rows.set(key, { resource, scope: resource === "cluster" ? "" : scope, operations: [...(rows.get(key)?.operations ?? []), operation] });
  }
  return [...rows.values()];
}

const onWhat = (row) => (row.resource === "cluster" ? "cluster" : row.pattern === "all" ? `every ${row.resource}` : html`${row.resource} ${row.pattern === "prefix" ? "beginning with " : ""}<code>${row.name}</code>`);

const RULE_COLUMNS = [
  { id: "operations", head: "Operations", class: "wrap", cell: (row) => row.operations.join(", ") },
  { id: "on", head: "On", class: "wrap", cell: onWhat },
];

function Check() {
  const [form, setForm] = useState({ principal: "token:", operation: "read", resource: "topic", name: "" });
  const [answer, setAnswer] = useState(null);
  const [problem, setProblem] = useState(null);
  const body = { ...form, ...(form.resource === "cluster" ? { name: undefined } : {}) };
  const set = (id) => (event) => { setForm({ ...form, [id]: event.target.value }); setAnswer(null); };
  const ask = async (event) => {
    event.preventDefault();
    try { setAnswer(await call("check_access", { body })); setProblem(null); } catch (error) { setProblem(error); setAnswer(null); }
  };
  return html`<form class="filters" onSubmit=${ask}>
      <label><span>Principal</span><input value=${form.principal} required spellcheck=${false} onInput=${set("principal")} /></label>
      <label><span>Operation</span><select value=${form.operation} onChange=${set("operation")}>${OPERATIONS.map((word) => html`<option key=${word}>${word}</option>`)}</select></label>
      <label><span>On</span><select value=${form.resource} onChange=${set("resource")}>${RESOURCES.map((word) => html`<option key=${word}>${word}</option>`)}</select></label>
      ${form.resource !== "cluster" && html`<label><span>Name</span><input value=${form.name} spellcheck=${false} onInput=${set("name")} /></label>`}
      <button type="submit">Ask</button></form>
    <${ProblemNote} problem=${problem} />
    <p role="status">${answer && html`<${State} kind=${answer.allowed ? "good" : "bad"} word=${answer.allowed ? "allowed" : "denied"} /> ${answer.rule ? html`by rule <code>${answer.rule}</code>` : "no rule allows it"}`}</p>
    ${answer && html`<${Curl} text=${curlOf("check_access", { body })} />`}`;
}

function Rules() {
  const poll = useCall("list_rules", {}, { isRepeated: false });
  return html`<${ProblemNote} problem=${poll.problem} />${poll.data && html`<${Table} caption="Rules" rows=${poll.data.rules} keyOf=${(row) => row.id} empty="No rule: the tokens file decides." columns=${[
    { id: "id", head: "Rule", class: "name", cell: (row) => html`<code>${row.id}</code>` }, { id: "effect", head: "Effect", cell: (row) => html`<${State} kind=${row.effect === "allow" ? "good" : "bad"} word=${row.effect} />` },
    { id: "who", head: "Principals", class: "wrap", cell: (row) => row.principals.join(", ") }, ...RULE_COLUMNS, column("note", "Note", { class: "wrap", priority: 3 }),
    { id: "made", head: "Made", priority: 3, class: "data nowrap", cell: (row) => html`<${Time} ms=${row.created_ms} />` },
  ]} />`}`;
}

function Quotas() {
  const poll = useCall("list_quotas", {}, { isRepeated: false });
  return html`<${ProblemNote} problem=${poll.problem} />${poll.data && html`<${Table} caption="Quotas" rows=${poll.data.quotas} keyOf=${(row) => row.id} empty="No quota: nothing is limited." columns=${[
    { id: "owner", head: "Owner", class: "name", cell: (row) => `${row.owner} ${row.name}` }, number("requests", "Requests/s"),
    number("bytes_in", "Bytes/s in", bytes), number("bytes_out", "Bytes/s out", bytes),
    number("connections", "Connections", count, 2), column("note", "Note", { class: "wrap", priority: 3 }),
  ]} />`}`;
}
