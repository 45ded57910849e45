// Plays the stories in Node, Deno and Bun: lines on stdin and stdout. node:process and node:readline are in all of them.
import process from "node:process";
import { createInterface } from "node:readline";
import { playing } from "./commands.mjs";

const library = await import(process.env.PENSTOCK_CLIENT);
const { PENSTOCK_URL, PENSTOCK_TOKEN: token, PENSTOCK_ATTEMPT_MS: attempt, PENSTOCK_DEADLINE_MS: deadline } = process.env;
const options = { url: PENSTOCK_URL.split(","), token, ...(attempt && { attemptMs: Number(attempt) }), ...(deadline && { deadlineMs: Number(deadline) }) };

const [group, topic, member] = process.argv.slice(2);
if (member) {
  // a worker that prints the values, as those of docs/examples/workers
  const consumer = new library.Client(options).group(group, [topic], { memberId: member });
  process.on("SIGTERM", () => consumer.close().finally(() => process.exit()));
  for await (const record of consumer) process.stdout.write(record.text() + "\n");
} else {
  const play = playing(library, options, (answer) => process.stdout.write(JSON.stringify(answer) + "\n"));
  for await (const line of createInterface({ input: process.stdin })) play(line);
}
