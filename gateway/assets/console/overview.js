// @ts-check
// The overview: what is wrong now and what to do about it, worst first, and then the numbers of the node.
import { bytes, count, rate, seconds } from "./format.js";
import { Bar, Facts, Page, Silent, State, Table, html, link, number } from "./parts.js";
import { HistoryPlot } from "./history.js";
import { useCall } from "./poll.js";

export default function Overview() {
  const poll = useCall("describe_overview");
  const view = poll.data, totals = view?.totals;
  return html`<${Page} title="Overview" poll=${poll}>${view && html`
    <${Findings} view=${view} />
    <${Facts} items=${[["Topics", html`<a href=${link("topics")}>${count(view.topics)}</a>`], ["Partitions", count(view.partitions)], ...(totals ? [
      ["Records/s in", rate(totals.records_in_per_s)], ["Bytes/s in", bytes(totals.bytes_in_per_s)], ["Bytes/s out", bytes(totals.bytes_out_per_s)], ["Requests/s", rate(totals.requests_per_s)],
      ["Ack, p99", seconds(totals.ack_p99_s)], ["Worst group lag", seconds(totals.group_lag_s)], ["Connections", count(totals.connections)], ["Stored", bytes(totals.log_bytes)]] : [])]} />
    <${HistoryPlot} at=${poll.at} series=${["records_in_per_s", "bytes_in_per_s", "bytes_out_per_s", "requests_per_s", "ack_p99_s", "group_lag_s"]} />
    ${view.disks?.length > 0 && html`<h2>Disks</h2><${Table} caption="Data directories" rows=${view.disks} keyOf=${(disk) => `${disk.node_id}${disk.path}`} columns=${[
      { id: "path", head: "Directory", class: "name", cell: (disk) => html`<span class="data">${disk.path}</span>` },
      number("node_id", "Node", String),
      number("free_bytes", "Free", bytes),
      number("size_bytes", "Size", bytes, 2),
      { id: "used", head: "Used", priority: 2, cell: (disk) => (disk.offline ? html`<${State} kind="bad" word=${disk.offline} />` : html`<${Bar} share=${1 - disk.free_bytes / disk.size_bytes} label=${`${Math.round(100 - (100 * disk.free_bytes) / disk.size_bytes)} % used`} />`) },
    ]} />`}
    <p class="foot">Penstock ${view.version}${view.cluster_id ? html` · cluster <code>${view.cluster_id}</code> · node ${view.node_id} of ${view.nodes}` : null}${view.limited_to ? " · what this token may see" : ""}</p>`}
  <//>`;
}

function Findings({ view }) {
  if (view.nodes_missing?.length > 0 && view.findings.length === 0) return html`<${Silent} nodes=${view.nodes_missing} />`;
  if (view.findings.length === 0) return html`<p class="fine"><${State} kind="good" word="nothing is wrong" /></p>`;
  return html`<${Silent} nodes=${view.nodes_missing} /><ul class="findings" aria-label="Findings, worst first">${view.findings.map((finding, place) => html`<li key=${finding.code + finding.subject + place}>
    <${State} kind=${finding.level === "fail" ? "bad" : "doubt"} word=${finding.level === "fail" ? "fails" : "warns"} />
    <div><p><b>${subject(finding)}</b> ${finding.found}</p><p class="remedy">${finding.remedy}</p>
      <p class="soft">${finding.age_s ? `for ${seconds(finding.age_s)} · ` : ""}<a href=${link("runbook", finding.code)}>${finding.code.replaceAll("_", " ")}</a></p></div></li>`)}</ul>
    ${view.more_findings > 0 && html`<p>and ${count(view.more_findings)} more</p>`}`;
}

function subject(finding) {
  if (finding.group) return html`<a href=${link("groups", finding.group)}>${finding.subject}</a>`;
  if (finding.subscription) return html`<a href=${link("push", finding.subscription)}>${finding.subject}</a>`;
  return finding.topic ? html`<a href=${link("topics", finding.topic, "partitions")}>${finding.subject}</a>` : finding.subject;
}
