// @ts-check
// Push subscriptions: the list, and one with its last deliveries.
import { Action, Missing } from "./action.js";
import { curlOf } from "./contract.js";
import { count, duration, plural } from "./format.js";
import { Empty, Facts, Page, State, Table, Time, column, go, html, link, number } from "./parts.js";
import { useCall } from "./poll.js";

const KINDS = { running: "good", failing: "bad", paused: "doubt", forbidden: "bad", stopped: "doubt" };

export default function Push({ names }) {
  return names.length ? html`<${Subscription} name=${names[0]} />` : html`<${List} />`;
}

function List() {
  const poll = useCall("list_subscriptions");
  return html`<${Page} title="Push" poll=${poll}>${poll.data && html`<${Table} caption="Subscriptions" rows=${poll.data.subscriptions} keyOf=${(row) => row.subscription} columns=${[
    { id: "name", head: "Subscription", class: "name", cell: (row) => html`<a href=${link("push", row.subscription)}>${row.subscription}</a>` },
    { id: "state", head: "State", cell: (row) => html`<${State} kind=${KINDS[row.state]} word=${row.state} />` },
    { id: "topics", head: "Topics", priority: 2, class: "name", cell: (row) => row.topics.join(" ") },
    column("url", "Target", { class: "name", priority: 2 }),
    column("last_error", "Last error", { class: "wrap", priority: 3 }),
  ]} empty=${html`<${Empty} title="No subscription yet" curl=${`${curlOf("describe_subscription", { names: { subscription: "billing" } }).replace("curl -sS", "curl -sS -X PUT")} -H 'Content-Type: application/json' -d '{"url":"https://example.org/hook","topics":["rides"]}'`}>A subscription delivers the records of topics to a URL by HTTP POST, signed, and tries again until it is accepted.<//>`} />`}<//>`;
}

function Subscription({ name }) {
  const names = { subscription: name };
  const poll = useCall("describe_subscription", { names });
  const row = poll.data, right = ["alter", "subscription", name];
  return html`<${Page} title=${name} kicker=${html`<a href=${link("push")}>Push</a>`} poll=${poll} aside=${row && html`<${State} kind=${KINDS[row.state]} word=${row.state} />`}>${row && html`
    <${Facts} items=${[["Target", html`<span class="data">${row.url}</span>`], ["Delivered", count(row.delivered)], ["Waiting", count(row.waiting)], ["In flight", count(row.in_flight)], ["Failed", count(row.failed)], ["Dead letters", count(row.dead_lettered)]]} />
    ${row.last_error && html`<div class="problem"><p><b>Last error</b></p><p>${row.last_error}</p></div>`}
    ${row.delivery.dead_letter_topic && html`<p>Dead letters go to <a href=${link("topics", row.delivery.dead_letter_topic)}>${row.delivery.dead_letter_topic}</a>.</p>`}
    <h2>Last deliveries</h2>
    <${Table} caption="Last deliveries" rows=${row.attempts} keyOf=${(attempt) => `${attempt.message_id}-${attempt.attempt}`} empty="Nothing has been delivered since the node started." columns=${[
      { id: "at", head: "Time", class: "data nowrap", cell: (attempt) => html`<${Time} ms=${attempt.at_ms} />` },
      { id: "status", head: "Answer", cell: (attempt) => html`<${State} kind=${attempt.status >= 200 && attempt.status < 300 ? "good" : "bad"} word=${attempt.status ?? "none"} />` },
      { id: "record", head: "Record", class: "data", cell: (attempt) => html`<a href=${link("topics", attempt.topic, { partition: attempt.partition, offset: attempt.offset, open: `${attempt.partition}:${attempt.offset}` })}>${attempt.topic} ${attempt.partition}:${attempt.offset}</a>` },
      number("record_count", "Records", count, 3),
      number("attempt", "Attempt", count, 2),
      number("latency_ms", "Took", duration, 2),
      column("error", "Error", { class: "wrap", priority: 3 }),
    ]} />
    <h2>Positions</h2>
    <${Table} caption="Positions" rows=${row.offsets} keyOf=${(part) => `${part.topic}/${part.partition}`} columns=${[
      { id: "topic", head: "Topic", class: "name", cell: (part) => html`<a href=${link("topics", part.topic)}>${part.topic}</a>` }, number("partition", "Partition", String),
      number("offset", "Next offset")]} />
    <${Missing} right=${right} what="Pausing, resuming and replaying" />
    <div class="actions">
      ${row.state === "paused" ? html`<${Action} label="Resume" right=${right} name="resume_subscription" request=${() => ({ names })} onDone=${poll.reload} effect=${() => `Delivers on from where ${name} was paused: ${plural(row.waiting, "record")} wait.`} />`
        : html`<${Action} label="Pause" right=${right} name="pause_subscription" request=${() => ({ names })} onDone=${poll.reload} effect=${() => `Stops the deliveries of ${name} to ${row.url}. Records wait in their topics as long as these retain them.`} />`}
      <${Action} label="Replay" title=${`Replay ${name}`} right=${right} name="replay_subscription" isBad onDone=${poll.reload}
        fields=${[{ id: "to", label: "From", value: "earliest", note: "earliest, latest, or a time as RFC 3339." }]} request=${(form) => ({ names, body: { to: /^\d+$/.test(form.to) ? Number(form.to) : form.to.trim() } })}
        effect=${(form) => `Moves all ${plural(row.offsets.length, "position")} of ${name} to ${form.to}. Records that were delivered are delivered to ${row.url} again.`} />
      <${Action} label="Delete subscription" right=${["delete", "subscription", name]} name="delete_subscription" typed=${name} isBad request=${() => ({ names })} onDone=${() => go("push")}
        effect=${() => `Deletes ${name} with its positions and secrets. ${plural(row.waiting, "record")} will not be delivered.`} />
    </div>`}<//>`;
}
