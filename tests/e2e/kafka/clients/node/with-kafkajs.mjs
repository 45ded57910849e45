// The story of the clients for kafkajs. It has codecs of its own for gzip alone; snappy and lz4 come as plugins.
import { createRequire } from 'node:module'

const require = createRequire(import.meta.url)
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')

CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec

const PARTITIONS = 6
const FIRST_TIME = 1_700_000_000_000
const CODECS = [CompressionTypes.GZIP, CompressionTypes.Snappy, CompressionTypes.None, CompressionTypes.GZIP]

const [servers, topic, replicas, records, seconds] = process.argv.slice(2).map((text, at) => (at < 2 ? text : Number(text)))
const kafka = new Kafka({ brokers: servers.split(','), logLevel: logLevel.ERROR, retry: { retries: 20 } })
const seen = new Set()
const counts = []
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function produce(compression, from, to) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (let first = from; first < to; first += 20) {
    const messages = []
    for (let number = first; number < Math.min(first + 20, to); number++) {
      messages.push({ key: `k${number % 97}`, value: `${number}`, timestamp: `${FIRST_TIME + number}` })
    }
    await producer.send({ topic, messages, compression, acks: -1 })
    await sleep((seconds / 4) * 1000 * 20 / (to - from))
  }
  await producer.disconnect()
}

async function join(member) {
  const consumer = kafka.consumer({
    groupId: topic, sessionTimeout: 6000, heartbeatInterval: 1000, rebalanceTimeout: 10000, maxWaitTimeInMs: 200
  })
  counts[member] = 0
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommitThreshold: 100,
    eachMessage: async ({ message }) => {
      seen.add(message.value.toString())
      counts[member]++
    }
  })
  return consumer
}

// Reads from the time of the record in the middle to the end.
async function afterHalf(admin) {
  const starts = await admin.fetchTopicOffsetsByTimestamp(topic, FIRST_TIME + records / 2)
  const ends = await admin.fetchTopicOffsets(topic)
  let left = 0
  for (const end of ends) left += Number(end.high) - Number(starts.find((one) => one.partition === end.partition).offset)
  let count = 0
  const consumer = kafka.consumer({ groupId: `${topic}-half`, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic] })
  await consumer.run({ eachMessage: async () => { count++ } })
  for (const { partition, offset } of starts) consumer.seek({ topic, partition, offset })
  for (const deadline = Date.now() + 30_000; count < left && Date.now() < deadline;) await sleep(100)
  await consumer.disconnect()
  return count
}

const admin = kafka.admin()
await admin.connect()
await admin.createTopics({ topics: [{ topic, numPartitions: PARTITIONS, replicationFactor: replicas }] })
const members = [await join(0), await join(1)]
await sleep(1000)
for (const [part, codec] of CODECS.entries()) {
  await produce(codec, Math.floor(part * records / 4), Math.floor((part + 1) * records / 4))
  if (part === 1) members.push(await join(2))
}
for (const deadline = Date.now() + 90_000; seen.size < records && Date.now() < deadline;) await sleep(100)
for (const one of members) {
  await one.stop()
  await one.disconnect()
}
const [{ partitions }] = await admin.fetchOffsets({ groupId: topic, topics: [topic] })
const committed = partitions.reduce((sum, one) => sum + Math.max(Number(one.offset), 0), 0)
console.log(JSON.stringify({ seen: seen.size, members: counts, committed, after_half: await afterHalf(admin) }))
await admin.disconnect()
