// @ts-check
// The list of groups, consumer and share, with what they lag and how that went in the last hour: one call.
import { Empty, Page, Spark, State, Table, go, html, link, number, sorted } from "./parts.js";
import { count, plural, seconds } from "./format.js";
import { curlOf } from "./contract.js";
import { useCall } from "./poll.js";

export const STATES = { stable: "good", reconciling: "doubt", empty: "plain" };

export const GROUP_COLUMNS = [
  { id: "name", head: "Group", class: "name", sort: (row) => row.group, cell: (row) => html`<a href=${link("groups", row.group)}>${row.group}</a>` },
  { id: "kind", head: "Kind", priority: 2, sort: (row) => row.kind, cell: (row) => row.kind },
  { id: "state", head: "State", sort: (row) => row.state, cell: (row) => html`<${State} kind=${STATES[row.state]} word=${row.state} />` },
  number("members", "Members", count, 2),
  number("lag_records", "Lag, records"),
  number("lag_s", "Lag, time", seconds),
];
const COLUMNS = [...GROUP_COLUMNS,
  { id: "trend", head: "Last hour", priority: 2, class: "trend", cell: (row) => html`<${Spark} points=${row.lag_trend_s} label=${`Lag in the last hour, at most ${seconds(Math.max(...row.lag_trend_s, 0))}`} />` }];

export default function Groups({ query }) {
  const poll = useCall("list_groups", { query: { include: "trend" } });
  const by = query.sort ?? "name", text = query.find ?? "";
  const move = (change) => go("groups", { sort: query.sort, find: query.find, ...change });
  const groups = poll.data?.groups ?? [];
  const shown = groups.filter((row) => row.group.includes(text));
  return html`<${Page} title="Groups" poll=${poll}>${poll.data && html`
    <form class="filters" onSubmit=${(event) => event.preventDefault()}><label><span>Name contains</span><input type="search" value=${text} spellcheck=${false} onInput=${(event) => move({ find: event.target.value })} /></label>
      <p class="tally">${plural(shown.length, "group")}${poll.data.limited_to ? " that this token may see" : ""}</p></form>
    <${Table} caption="Groups" columns=${COLUMNS} rows=${sorted(shown, COLUMNS, by).slice(0, 200)} keyOf=${(row) => row.group} sort=${{ by, onSort: (sort) => move({ sort }) }}
      empty=${text ? `No group's name has ${text} in it.` : html`<${Empty} title="No group yet" curl=${curlOf("list_groups")}>A group shares the partitions of its topics among its members and keeps their positions. Its first member creates it.<//>`} />
    ${shown.length > 200 && html`<p class="soft">The first 200 of ${count(shown.length)}: give more of the name.</p>`}`}
  <//>`;
}
