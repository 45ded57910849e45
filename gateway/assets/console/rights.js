// @ts-check
// The rights of the caller, from GET /v1/me. Until it has answered nothing may be done. The node decides again at each
// call: this only keeps buttons away that it would refuse.
import { call } from "./contract.js";

let me = null;

export function currentMe() { return me; }

/** Asks who the caller is. A caller without a token that the node does not know has no rights. */
export async function loadMe() {
  try { me = await call("describe_me"); } catch { me = null; }
}

/** Returns whether the caller may. `name` is that of a topic, a group and so on; null: any of them; empty for the cluster. */
export function may(operation, resource, name = "") {
  if (!me) return false;
  return me.superuser || me.rights.some((right) => right.operation === operation && right.resource === resource
    && (name === null || right.names.includes(name) || right.prefixes.some((prefix) => name.startsWith(prefix))));
}
