// @ts-check
// The nodes of the cluster, what moves between them, and the operations on them. Each shows its plan before it is done.
import { useState } from "preact/hooks";
import { Action, Missing } from "./action.js";
import { call } from "./contract.js";
import { bytes, count, duration, plural } from "./format.js";
import { Facts, Page, State, Table, html, link, number } from "./parts.js";
import { usePoll } from "./poll.js";

const OPERATE = ["operate", "cluster", ""];

export default function Cluster() {
  const [moves, setMoves] = useState(null);
  const poll = usePoll(async (signal) => {
    const cluster = await call("describe_cluster", { signal });
    // Reassignments are asked for only where there are other nodes to move to.
    if (cluster.nodes.length > 1 && cluster.cluster_id) setMoves((await call("list_reassignments", { signal })).reassignments);
    return cluster;
  }, "cluster");
  const cluster = poll.data, nodes = cluster?.nodes ?? [];
  const others = nodes.filter((node) => node.alive && !node.drained).length > 1;
  const unhealthy = [["Without leader", cluster?.offline_partitions, "bad"], ["Below min in sync", cluster?.under_min_in_sync, "bad"], ["Under-replicated", cluster?.under_replicated, "doubt"]];
  return html`<${Page} title="Cluster" poll=${poll}>${cluster && html`
    <${Facts} items=${[cluster.cluster_id && ["Cluster", html`<code>${cluster.cluster_id}</code>`], ["Nodes", count(nodes.length)], cluster.controller !== undefined && ["Controller", cluster.controller === null ? "none" : `node ${cluster.controller}`], cluster.shards && ["Shards a node", count(cluster.shards)],
      cluster.coordination && ["Coordination", cluster.coordination.silent ? html`<${State} kind="bad" word="silent" />` : `${duration(cluster.coordination.age_ms)} ago`]]} />
    ${unhealthy.filter(([, list]) => list?.length).map(([word, list, kind]) => html`<div class="problem"><p><${State} kind=${kind} word=${word} /></p><p>${list.map((row) => html`<a href=${link("topics", row.topic, "partitions")}>${row.topic} ${row.partitions.join(", ")}</a> `)}</p></div>`)}
    <${Table} caption="Nodes" rows=${nodes} keyOf=${(node) => node.node_id ?? node.url} columns=${[
      { id: "id", head: "Node", isNumber: true, cell: (node) => node.node_id ?? "–" },
      { id: "state", head: "State", cell: (node) => nodeState(node) },
      { id: "url", head: "Address", class: "data", priority: 2, cell: (node) => node.url ?? "–" },
      { id: "rack", head: "Rack", priority: 3, cell: (node) => node.rack ?? "–" },
      { id: "version", head: "Version", priority: 3, cell: (node) => node.version ?? "–" },
      number("leading", "Leading"),
      number("partitions", "Replicas", count, 2),
      number("under_replicated", "Behind"),
      ...(others || nodes.some((node) => node.drained) ? [{ id: "drain", head: "Actions", cell: (node) => html`<${Drain} node=${node} onDone=${poll.reload} />` }] : []),
    ]} />
    ${moves?.length > 0 && html`<h2>Reassignments</h2><${Table} caption="Reassignments" rows=${moves} keyOf=${(move) => `${move.topic}/${move.partition}`} columns=${[
      { id: "name", head: "Partition", class: "name", cell: (move) => `${move.topic}/${move.partition}` },
      { id: "adding", head: "To", cell: (move) => move.adding.join(", ") || "–" }, { id: "removing", head: "From", cell: (move) => move.removing.join(", ") || "–" },
      { id: "left", head: "Left", isNumber: true, cell: (move) => bytes(Object.values(move.left_bytes).reduce((sum, left) => sum + left, 0)) },
      { id: "cancel", head: "Actions", cell: (move) => html`<${Action} label="Cancel move" right=${OPERATE} name="cancel_reassignment" onDone=${poll.reload} request=${() => ({ names: { topic: move.topic, partition: move.partition } })} effect=${() => `Leaves ${move.topic}/${move.partition} on its present replicas; what was copied is deleted.`} />` },
    ]} />`}
    <${Missing} right=${OPERATE} what="Draining, moving and balancing" />
    ${others ? html`<div class="actions"><${Action} label="Balance" title="Balance the cluster" right=${OPERATE} name="balance" onDone=${poll.reload} preview=${() => ({ body: { apply: false } })} request=${() => ({ body: { apply: true } })}
        effect=${(form, plan) => (plan?.moves.length ? [`Moves ${plural(plan.moves.length, "replica")} and ${bytes(plan.moves.reduce((sum, move) => sum + move.size_bytes, 0))}.`, ...plan.moves.slice(0, 8).map((move) => `${move.topic}/${move.partition}: node ${move.from_node} → ${move.to_node}, ${bytes(move.size_bytes)}`)] : "Nothing is to be moved.")} />
      <${Action} label="Move partition" title="Move a partition" right=${OPERATE} name="reassign" onDone=${poll.reload}
        fields=${[{ id: "topic", label: "Topic", isNeeded: true }, { id: "partition", label: "Partition", value: "0" }, { id: "nodes", label: "Nodes, the preferred leader first", example: "1, 3" }]}
        request=${(form) => {
          const replicas = form.nodes.split(/[\s,]+/).filter(Boolean).map(Number);
          if (!form.topic || !replicas.length || replicas.some((node) => !nodes.some((known) => known.node_id === node))) throw new Error("Give a topic and nodes of this cluster.");
          return { body: { topic: form.topic, partitions: { [form.partition]: replicas } } };
        }} effect=${(form) => `Copies ${form.topic}/${form.partition} to the nodes ${form.nodes} that have it not, then takes it from the others.`} /></div>`
      : html`<p class="soft">A node alone has no other to move leaderships to.</p>`}`}
  <//>`;
}

function nodeState(node) {
  if (node.alive === false) return html`<${State} kind="bad" word="dead" />`;
  if (node.leaving) return html`<${State} kind="doubt" word="leaving" />`;
  if (node.drained) return html`<${State} kind="doubt" word="drained" />`;
  return node.stale ? html`<${State} kind="doubt" word="stale" />` : html`<${State} kind="good" word="alive" />`;
}

function Drain({ node, onDone }) {
  const names = { node_id: node.node_id };
  return node.drained
    ? html`<${Action} label="End drain" title=${`End the drain of node ${node.node_id}`} right=${OPERATE} name="drain_node" onDone=${onDone} request=${() => ({ names, body: { drained: false } })} effect=${() => `Node ${node.node_id} may lead partitions again.`} />`
    : html`<${Action} label="Drain" title=${`Drain node ${node.node_id}`} right=${OPERATE} name="drain_node" onDone=${onDone} request=${() => ({ names, body: { drained: true } })} effect=${() => `Moves ${plural(node.leading, "leadership")} away from node ${node.node_id}, which leads nothing until the drain is ended. Its replicas stay.`} />`;
}
