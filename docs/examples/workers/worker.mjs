// A worker of a consumer group with Node.js 18 or later and no package.
// usage: PENSTOCK_URL=http://127.0.0.1:8080 node worker.mjs GROUP TOPIC MEMBER
import { setTimeout as sleep } from "node:timers/promises";

const [group, topic, member] = process.argv.slice(2);
const url = `${process.env.PENSTOCK_URL}/v1/groups/${group}/members/${member}`;

async function poll(token) {
  const response = await fetch(`${url}/poll`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ topics: [topic], token, wait_ms: 20000 }),
    signal: AbortSignal.timeout(30000),
  });
  return response.json(); // also of a problem: it has a code
}

function work(record) {
  console.log(JSON.stringify(record.value));
}

process.on("SIGTERM", async () => {
  await fetch(url, { method: "DELETE" }).catch(() => {}); // the other members get the partitions at once
  process.exit();
});

for (let token = ""; ; ) {
  let answer;
  try {
    answer = await poll(token);
  } catch {
    await sleep(1000);
    continue; // the same request once more
  }
  if (answer.code === "stale_token") {
    token = "";
    continue;
  }
  if (!answer.token) {
    console.error(answer.detail);
    await sleep(1000);
    continue;
  }
  for (const partition of answer.partitions) for (const record of partition.records ?? []) work(record);
  token = answer.token; // the next poll commits these records
}
