// @ts-check
// Tenants: what each has of its limits, and what it has used by the hour.
import { bytes, count, plural } from "./format.js";
import { Bar, Empty, Facts, Page, Spark, Table, Time, column, html, link } from "./parts.js";
import { curlOf } from "./contract.js";
import { useCall } from "./poll.js";

const LIMITED = ["topics", "partitions", "groups", "subscriptions", "members", "stored_bytes"];

export default function Tenants({ names }) {
  return names.length ? html`<${Tenant} name=${names[0]} />` : html`<${List} />`;
}

function List() {
  const poll = useCall("list_tenants");
  return html`<${Page} title="Tenants" poll=${poll}>${poll.data && html`<${Table} caption="Tenants" rows=${poll.data.tenants} keyOf=${(row) => row.tenant} columns=${[
    { id: "name", head: "Tenant", class: "name", cell: (row) => html`<a href=${link("tenants", row.tenant)}>${row.tenant}</a>` },
    column("note", "Note", { class: "wrap" }), { id: "author", head: "Made by", priority: 2, cell: (row) => row.author },
    { id: "created", head: "Made", class: "data nowrap", priority: 2, cell: (row) => html`<${Time} ms=${row.created_ms} />` },
  ]} empty=${html`<${Empty} title="No tenant" curl=${`${curlOf("describe_tenant", { names: { tenant: "acme" } }).replace("curl -sS", "curl -sS -X PUT")}`}>A tenant has topics, groups and tokens of its own, and limits; it does not see others.<//>`} />`}<//>`;
}

function Tenant({ name }) {
  const poll = useCall("describe_tenant", { names: { tenant: name } });
  const usage = useCall("describe_usage", { names: { tenant: name } }, { isRepeated: false });
  const tenant = poll.data, used = usage.data;
  const show = (kind, value) => (kind === "stored_bytes" ? bytes(value) : count(value));
  return html`<${Page} title=${name} kicker=${html`<a href=${link("tenants")}>Tenants</a>`} poll=${poll}>${tenant && html`
    <${Table} caption="Use against limits" rows=${LIMITED} keyOf=${(kind) => kind} columns=${[
      { id: "kind", head: "Of", cell: (kind) => kind.replace("_", " ") }, { id: "used", head: "Has", isNumber: true, cell: (kind) => show(kind, tenant[kind]) },
      { id: "limit", head: "May have", isNumber: true, cell: (kind) => (tenant.limits[kind] === null || tenant.limits[kind] === undefined ? "no limit" : show(kind, tenant.limits[kind])) },
      { id: "share", head: "Share", cell: (kind) => (tenant.limits[kind] ? html`<${Bar} share=${tenant[kind] / tenant.limits[kind]} label=${`${Math.round((100 * tenant[kind]) / tenant.limits[kind])} % of the limit`} />` : "") },
    ]} />
    ${used && html`<h2>The last 24 hours</h2>
      <${Facts} items=${[["Records", count(used.total.records)], ["Produced", bytes(used.total.produce_bytes_in)], ["Read", bytes(used.total.read_bytes_out)], ["Requests", count(used.total.produce_requests + used.total.read_requests + used.total.other_requests)], ["Refused", count(used.total.refused_requests)], ["Failed", count(used.total.failed_requests)]]} />
      <p>Records by the hour <${Spark} points=${used.hours.map((hour) => hour.records)} label=${`Records by the hour, ${plural(used.hours.length, "hour")}, last ${count(used.hours.at(-1)?.records)}`} />${used.complete ? "" : " Some nodes have not answered: the numbers are too low."}</p>`}`}<//>`;
}
