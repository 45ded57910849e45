// @ts-check
// The settings of this node: the value in force, where it comes from, its default and reason.
import { Page, State, Table, go, html } from "./parts.js";
import { plural } from "./format.js";
import { useCall } from "./poll.js";
import { marked } from "./runbook.js";

export default function Settings({ query }) {
  const poll = useCall("describe_settings", {}, { isRepeated: false });
  const isAll = query.all === "1", text = query.find ?? "";
  const settings = poll.data?.settings ?? [];
  const shown = settings.filter((row) => (isAll || row.source !== "default") && row.name.includes(text));
  const move = (change) => go("settings", { all: query.all, find: query.find, ...change });
  return html`<${Page} title="Settings" poll=${poll}>${poll.data && html`
    <form class="filters" onSubmit=${(event) => event.preventDefault()}>
      <label><span>Name contains</span><input type="search" value=${text} spellcheck=${false} onInput=${(event) => move({ find: event.target.value })} /></label>
      <label class="check"><input type="checkbox" checked=${isAll} onChange=${() => move({ all: isAll ? "" : "1" })} /> Defaults too</label>
      <p class="tally">${plural(shown.length, "setting")} of ${settings.length}</p></form>
    <${Table} caption="Settings of this node" rows=${shown} keyOf=${(row) => row.name} empty=${isAll ? "No setting has this in its name." : "Every setting has its default."} columns=${[
      { id: "name", head: "Setting", class: "word", cell: (row) => html`<code>${row.name}</code>` },
      { id: "value", head: "Value", class: "name", cell: (row) => html`<code>${String(row.value ?? "–")}</code>` },
      { id: "source", head: "From", cell: (row) => html`<${State} kind=${row.source === "adjusted" ? "doubt" : "plain"} word=${row.source} />` },
      { id: "default", head: "Default", priority: 2, class: "name", cell: (row) => html`<code>${String(row.default ?? "–")}</code>` },
      { id: "why", head: "Reason", class: "wrap", priority: 2, cell: (row) => marked(row.why) },
    ]} />
    <p class="soft">Change it by flag, environment or file; most take effect at the next start.</p>`}
  <//>`;
}
