// The commands of the stories by the TypeScript client, for any runtime: a JSON command in, JSON answers out (tests/clients/runner.py).

const LATE_MS = 1500; // longer than a lock of the stories

/** Returns a function that takes a line with a command; `say` gets the objects of its answers. */
export function playing({ Client, EventStream, isPenstockError, verifyWebhook }, options, say) {
  let token = options.token ?? "";
  let trace;
  const client = new Client({ ...options, token: () => token, traceContext: () => ({ traceparent: trace }) });
  const kept = new Map(); // producers that stay, by the name of `keep`
  const forever = new Promise(() => {});
  const stops = new Map(); // id of a running command: its AbortController
  const row = (record) => ({ partition: record.partition, offset: record.offset, key: record.key, value: record.text(), count: record.deliveryCount, trace: record.traceContext.traceparent });

  const COMMANDS = {
    async produce({ topic, records, options, keep }) {
      const producer = kept.get(keep) ?? client.producer(options);
      if (keep) kept.set(keep, producer);
      const sent = records.map((record) => producer.send(topic, record));
      await (keep ? producer.flush() : producer.close()); // throws the first failure, when all have their outcome
      const swallowed = () => {
        throw new Error("a failure that was not thrown");
      };
      return (await Promise.all(sent.map((delivery) => delivery.catch(swallowed)))).map(({ partition, offset }) => [partition, offset]);
    },
    async count({ topic, records }) {
      const producer = client.producer({ batchBytes: 200 });
      for (const record of records) producer.send(topic, record);
      await producer.flush();
      const { recordsAcknowledged, recordsFailed, unanswered, bufferedLength } = producer.statistics();
      const counts = producer.takeAcceptedCounts();
      return { counts, left: producer.takeAcceptedCounts(), statistics: [recordsAcknowledged, recordsFailed, unanswered, bufferedLength] };
    },
    async append({ topic, records, key }) {
      return client.append(topic, records, { idempotencyKey: key });
    },
    async consume({ id, topic, count, follow, ...options }) {
      const { signal } = stops.get(id);
      const consumer = follow ? client.follow(topic, { ...options, signal }) : client.consume(topic, { ...options, signal });
      for await (const record of consumer) {
        say({ id, record: row(record) });
        if (--count === 0) break;
      }
      return consumer.positions();
    },
    async work({ id, group, topic, member, hold = 0 }) {
      const consumer = client.group(group, [topic], { memberId: member, signal: stops.get(id).signal });
      try {
        for await (const record of consumer) {
          say({ id, record: row(record) });
          if (--hold === 0) await forever; // at work, so that it is never finished
        }
      } catch (error) {
        if (error.name !== "AbortError") throw error;
      }
    },
    async queue({ id, group, topic, count, outcomes }) {
      for await (const job of client.queue(group, [topic], { signal: stops.get(id).signal, waitMs: 2000 })) {
        const outcome = job.record.deliveryCount > 1 ? "accept" : (outcomes[job.record.text()] ?? "accept");
        if (outcome === "hold") {
          say({ id, record: row(job.record) });
          await forever;
        }
        if (outcome === "late") await new Promise((resolve) => setTimeout(resolve, LATE_MS));
        await (outcome === "release" ? job.release({ delayMs: 0 }) : outcome === "reject" ? job.reject() : job.accept());
        say({ id, record: row(job.record) });
        if (--count === 0) break;
      }
    },
    async look_up({ topic, key, at_least: atLeast }) {
      const record = await client.lookUp(topic, key, { atLeast, waitMs: 5000 });
      return record && row(record);
    },
    async table({ topic }) {
      const rows = {};
      for await (const record of client.table(topic)) rows[record.key] = record.text();
      return rows;
    },
    async verify({ body, headers, secrets, now_ms }) {
      return (await verifyWebhook(body, headers, secrets, now_ms)).id;
    },
    async events({ id, topic, count, ...options }) {
      const stream = new EventStream(client, topic, { ...options, signal: stops.get(id).signal });
      for await (const record of stream) {
        say({ id, record: row(record) });
        if (--count === 0) break;
      }
      return stream.position;
    },
    async sign({ path, ...options }) {
      return client.signUrl(path, options);
    },
    async set_trace({ value }) {
      trace = value;
    },
    async set_token({ value }) {
      token = value;
    },
    async call({ operation, path, body }) {
      return client.call(operation, { path, body });
    },
    async load({ topic, records, bytes }) {
      const producer = client.producer();
      const value = "x".repeat(bytes - 2);
      const began = performance.now();
      for (let n = 0; n < records; n++) {
        if (n % 1000 === 0) await producer.ready;
        producer.send(topic, { value });
      }
      await producer.close();
      return (records * 1000) / (performance.now() - began);
    },
  };

  async function run(command) {
    stops.set(command.id, new AbortController());
    try {
      say({ id: command.id, done: (await COMMANDS[command.do](command)) ?? null });
    } catch (error) {
      if (!isPenstockError(error)) say({ id: command.id, error: { code: String(error) } });
      else say({ id: command.id, error: { code: error.code, status: error.status, retryable: error.retryable, maybe_done: error.maybeDone } });
    }
    stops.delete(command.id);
  }

  return (line) => {
    const command = JSON.parse(line);
    if (command.do === "stop") stops.get(command.stop)?.abort();
    else void run(command);
  };
}
