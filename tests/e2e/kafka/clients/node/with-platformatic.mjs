// The story of the clients for @platformatic/kafka.
import { Admin, Consumer, Producer, ProduceAcks, MessagesStreamModes, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const PARTITIONS = 6
const FIRST_TIME = 1_700_000_000_000
const CODECS = ['gzip', 'snappy', 'lz4', process.versions.node.startsWith('20') ? 'none' : 'zstd'] // zlib has zstd from 22 on

const [servers, topic, replicas, records, seconds] = process.argv.slice(2).map((text, at) => (at < 2 ? text : Number(text)))
const bootstrapBrokers = servers.split(',')
const options = { clientId: 'story', bootstrapBrokers, retries: 20, retryDelay: 500 }
const seen = new Set()
const counts = []
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

async function produce(compression, from, to) {
  const producer = new Producer({ ...options, serializers: stringSerializers, idempotent: true, compression })
  for (let first = from; first < to; first += 20) {
    const messages = []
    for (let number = first; number < Math.min(first + 20, to); number++) {
      messages.push({ topic, key: `k${number % 97}`, value: `${number}`, timestamp: BigInt(FIRST_TIME + number) })
    }
    await producer.send({ messages, acks: ProduceAcks.ALL })
    await sleep((seconds / 4) * 1000 * 20 / (to - from))
  }
  await producer.close()
}

async function join(member) {
  const consumer = new Consumer({
    ...options, groupId: topic, deserializers: stringDeserializers, sessionTimeout: 6000, heartbeatInterval: 1000,
    rebalanceTimeout: 10000, maxWaitTime: 200, autocommit: 500
  })
  counts[member] = 0
  const stream = await consumer.consume({ topics: [topic], mode: MessagesStreamModes.COMMITTED, fallbackMode: 'earliest' })
  stream.on('data', (message) => {
    seen.add(message.value)
    counts[member]++
  })
  stream.on('error', (error) => console.error('stream:', error.message))
  return { consumer, stream }
}

// Reads from the time of the record in the middle to the end.
async function afterHalf(consumer) {
  const numbers = [...Array(PARTITIONS).keys()]
  const ends = (await consumer.listOffsets({ topics: [topic], partitions: { [topic]: numbers } })).get(topic)
  const starts = (await consumer.listOffsets({
    topics: [topic], partitions: { [topic]: numbers }, timestamp: BigInt(FIRST_TIME + records / 2)
  })).get(topic)
  let left = 0
  const offsets = numbers.map((partition) => {
    const offset = starts[partition] < 0n ? ends[partition] : starts[partition]
    left += Number(ends[partition] - offset)
    return { topic, partition, offset }
  })
  const reader = new Consumer({ ...options, groupId: `${topic}-half`, deserializers: stringDeserializers, maxWaitTime: 200 })
  const stream = await reader.consume({ topics: [topic], mode: MessagesStreamModes.MANUAL, offsets })
  let count = 0
  stream.on('data', () => { count++ })
  for (const deadline = Date.now() + 30_000; count < left && Date.now() < deadline;) await sleep(100)
  await stream.close()
  await reader.close()
  return count
}

const admin = new Admin(options)
await admin.createTopics({ topics: [topic], partitions: PARTITIONS, replicas })
const members = [await join(0), await join(1)]
await sleep(1000)
for (const [part, codec] of CODECS.entries()) {
  await produce(codec, Math.floor(part * records / 4), Math.floor((part + 1) * records / 4))
  if (part === 1) members.push(await join(2))
}
for (const deadline = Date.now() + 90_000; seen.size < records && Date.now() < deadline;) await sleep(100)
await sleep(1000)
for (const { consumer, stream } of members) {
  await stream.close()
  await consumer.close(true)
}
const asks = new Consumer({ ...options, groupId: topic })
const numbers = [...Array(PARTITIONS).keys()]
const offsets = (await asks.listCommittedOffsets({ topics: [{ topic, partitions: numbers }] })).get(topic)
const committed = Number(offsets.reduce((sum, one) => sum + (one < 0n ? 0n : one), 0n))
console.log(JSON.stringify({ seen: seen.size, members: counts, committed, after_half: await afterHalf(asks) }))
await asks.close()
await admin.close()
