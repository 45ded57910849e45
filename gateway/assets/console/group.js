// @ts-check
// One group: how far it is behind and why, its members, its positions, and the reset, which shows its plan first.
import { useEffect, useState } from "preact/hooks";
import { Action, Missing } from "./action.js";
import { call } from "./contract.js";
import { DASH, bytes, count, duration, plural } from "./format.js";
import { STATES } from "./groups.js";
import { Facts, Page, State, Table, Time, column, go, html, link, number, sorted } from "./parts.js";
import { HistoryPlot } from "./history.js";
import { usePoll } from "./poll.js";
import { POSITION_COLUMNS, sum } from "./topic.js";

export default function Group({ names: [name] }) {
  const names = { group: name };
  const poll = usePoll((signal) => call("describe_group", { names, signal }), name);
  const [explanation, setExplanation] = useState(null);
  const [by, setBy] = useState("-lag");
  useEffect(() => { call("explain_group", { names }).then(setExplanation, () => setExplanation(null)); }, [name]);
  const group = poll.data, right = ["alter", "group", name];
  const partitions = group?.partitions ?? [];
  const isShare = group?.kind === "share";
  const columns = [{ id: "topic", head: "Topic", class: "name", sort: (row) => row.topic, cell: (row) => html`<a href=${link("topics", row.topic)}>${row.topic}</a>` }, ...POSITION_COLUMNS,
    ...(isShare ? [number("in_flight", "In flight"), number("dead_letters", "Dead letters")] : [])];
  const reset = (form, isDry) => ({ names, body: { ...resetTo(form), ...(isDry ? { dry_run: true } : {}), ...(form.force === "yes" ? { force: true } : {}) } });
  return html`<${Page} title=${name} kicker=${html`<a href=${link("groups")}>Groups</a>`} poll=${poll} aside=${group && html`<${State} kind=${STATES[group.state]} word=${group.state} />`}>${group && html`
    <${Facts} items=${[["Kind", group.kind], ["Members", count(group.members.length || (group.callers?.length ?? 0))], ["Partitions", count(partitions.length)], ["Lag, records", count(sum(partitions, (row) => row.lag))],
      ["Lag, time", duration(partitions.reduce((most, row) => (row.lag_ms > (most ?? -1) ? row.lag_ms : most), null))], ["Lag, bytes", bytes(sum(partitions, (row) => row.lag_bytes))]]} />
    ${explanation && html`<${Explanation} explanation=${explanation} />`}
    <${HistoryPlot} at=${poll.at} of=${{ group: name }} series=${["lag_records", "lag_s"]} />
    <h2>Positions</h2>
    <${Table} caption="Positions" columns=${columns} rows=${sorted(partitions, columns, by).slice(0, 200)} keyOf=${(row) => `${row.topic}/${row.partition}`} sort=${{ by, onSort: setBy }} empty="The group has no partitions yet." />
    ${partitions.length > 200 && html`<p class="soft">The first 200 of ${count(partitions.length)}.</p>`}
    <h2>Members</h2>
    <${Table} caption="Members" rows=${group.members} keyOf=${(row) => row.member_id} empty=${isShare ? "Callers of a share group have no membership; those that hold locks are counted above." : "No member: nothing is read."} columns=${[
      column("member_id", "Member", { class: "name" }),
      { id: "client", head: "Client", priority: 2, cell: (row) => `${row.client_id ?? DASH} ${row.client_address}` },
      { id: "holds", head: "Holds", cell: (row) => plural(row.assignment.length, "partition") },
      { id: "which", head: "Which", priority: 3, class: "data value", cell: (row) => row.assignment.map((part) => `${part.topic}/${part.partition}`).join(" ") },
      number("session_left_ms", "Session ends in", duration, 2),
    ]} />
    ${explanation?.events.length > 0 && html`<h2>Events</h2><${Table} caption="Events, newest first" rows=${[...explanation.events].reverse().slice(0, 40)} keyOf=${(row) => `${row.at_ms}${row.cause}${row.member_id}`} columns=${[
      { id: "at", head: "Time", class: "data nowrap", cell: (row) => html`<${Time} ms=${row.at_ms} />` }, { id: "cause", head: "Event", cell: (row) => row.cause.replaceAll("_", " ") },
      { id: "member", head: "Member", class: "name", cell: (row) => row.member_id ?? DASH }, { id: "detail", head: "Detail", priority: 2, class: "wrap", cell: (row) => `${row.detail ?? ""}${row.count > 1 ? ` × ${row.count}` : ""}` },
    ]} />`}
    <${Missing} right=${right} what="Resetting" />
    <div class="actions">
      <${Action} label="Reset positions" title=${`Reset ${name}`} right=${right} name="reset_group" onDone=${poll.reload} isBad
        fields=${[{ id: "to", label: "To", value: "earliest", choices: ["earliest", "latest", "time", "shift"] }, { id: "value", label: "Time, or records to move by", value: "", note: "RFC 3339 for time; a number, negative for back, for shift." },
          { id: "force", label: "Although it has members", value: "no", choices: ["no", "yes"] }]}
        preview=${(form) => reset(form, true)} request=${(form) => reset(form, false)}
        effect=${(form, plan) => {
          const moved = (plan?.offsets ?? []).filter((row) => row.offset !== row.previous_offset);
          const again = moved.reduce((total, row) => total + Math.max(0, (row.previous_offset ?? 0) - row.offset), 0);
          const skipped = moved.reduce((total, row) => total + (row.previous_offset === null ? 0 : Math.max(0, row.offset - row.previous_offset)), 0);
          return [`Moves ${plural(moved.length, "position")} of ${plan?.offsets.length ?? 0}: ${count(again)} offsets are delivered again, ${count(skipped)} are skipped.`,
            ...moved.slice(0, 8).map((row) => `${row.topic}/${row.partition}: ${count(row.previous_offset)} → ${count(row.offset)}`), moved.length > 8 ? `and ${moved.length - 8} more` : ""].filter(Boolean);
        }} />
      <${Action} label="Delete group" right=${["delete", "group", name]} name="delete_group" typed=${name} isBad request=${() => ({ names })} onDone=${() => go("groups")}
        effect=${() => `Deletes ${name} with ${plural(partitions.length, "position")}. A member that comes again begins where its settings say.`} />
    </div>`}<//>`;
}

function resetTo({ to, value }) {
  if (to === "earliest" || to === "latest") return { to };
  if (to === "shift") {
    if (!/^-?\d+$/.test(value.trim())) throw new Error("Give the number of records to move by.");
    return { shift: Number(value) };
  }
  if (!value.trim()) throw new Error("Give the time.");
  return { to: /^\d+$/.test(value.trim()) ? Number(value) : value.trim() };
}

function Explanation({ explanation }) {
  if (explanation.findings.length === 0) return html`<p class="fine"><${State} kind="good" word="nothing is wrong" /></p>`;
  return html`<ul class="findings">${explanation.findings.map((finding, place) => html`<li key=${place}><${State} kind="doubt" word=${finding.cause.replaceAll("_", " ")} /><div><p>${finding.text}</p></div></li>`)}</ul>`;
}
