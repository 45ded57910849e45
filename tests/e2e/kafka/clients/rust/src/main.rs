//! The story of the clients for rskafka, which has neither groups nor an idempotent producer: partitions are read to
//! their ends by three readers.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, Utc};
use rskafka::client::partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::client::{Client, ClientBuilder};
use rskafka::record::Record;

const PARTITIONS: i32 = 6;
const READERS: i32 = 3;
const FIRST_TIME: i64 = 1_700_000_000_000;
const BYTES: std::ops::Range<i32> = 1..1_000_000;

fn time_of(number: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(FIRST_TIME + number).unwrap()
}

async fn partition(client: &Client, topic: &str, number: i32) -> PartitionClient {
    client.partition_client(topic, number, UnknownTopicHandling::Retry).await.unwrap()
}

async fn produce(client: &Client, topic: &str, codec: Compression, from: i64, to: i64, seconds: f64) {
    let mut partitions = Vec::new();
    for number in 0..PARTITIONS {
        partitions.push(partition(client, topic, number).await);
    }
    let mut first = from;
    while first < to {
        let last = (first + 20).min(to);
        let mut batches: BTreeMap<usize, Vec<Record>> = BTreeMap::new();
        for number in first..last {
            batches.entry((number % 97) as usize % partitions.len()).or_default().push(Record {
                key: Some(format!("k{}", number % 97).into_bytes()),
                value: Some(number.to_string().into_bytes()),
                headers: BTreeMap::new(),
                timestamp: time_of(number),
            });
        }
        for (at, batch) in batches {
            partitions[at].produce(batch, codec).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs_f64(seconds * 20.0 / (to - from) as f64)).await;
        first = last;
    }
}

async fn read(partition: &PartitionClient, mut offset: i64, end: impl Fn() -> Option<i64>, mut seen: impl FnMut(Vec<u8>)) {
    while end().is_none_or(|end| offset < end) {
        let (records, _) = partition.fetch_records(offset, BYTES, 200).await.unwrap();
        for one in records {
            offset = one.offset + 1;
            seen(one.record.value.unwrap());
        }
    }
}

#[tokio::main]
async fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let (topic, replicas) = (given[1].clone(), given[2].parse().unwrap());
    let (records, seconds): (i64, f64) = (given[3].parse().unwrap(), given[4].parse().unwrap());
    let client = ClientBuilder::new(given[0].split(',').map(str::to_owned).collect()).build().await.unwrap();
    let client = Arc::new(client);
    client.controller_client().unwrap().create_topic(&topic, PARTITIONS, replicas, 10_000).await.unwrap();
    let seen = Arc::new(Mutex::new(HashSet::new()));
    let is_done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut readers = Vec::new();
    for number in 0..PARTITIONS {
        let (client, topic, seen, is_done) = (client.clone(), topic.clone(), seen.clone(), is_done.clone());
        readers.push(tokio::spawn(async move {
            let partition = partition(&client, &topic, number).await;
            let mut count = 0;
            let end = || is_done.load(std::sync::atomic::Ordering::Relaxed).then_some(0);
            read(&partition, 0, end, |value| {
                seen.lock().unwrap().insert(value);
                count += 1;
            })
            .await;
            count
        }));
    }
    let codecs = [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
    for (part, codec) in codecs.into_iter().enumerate() {
        let (from, to) = (part as i64 * records / 4, (part as i64 + 1) * records / 4);
        produce(&client, &topic, codec, from, to, seconds / 4.0).await;
    }
    for _ in 0..900 {
        if seen.lock().unwrap().len() as i64 >= records {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut counts = vec![0; READERS as usize];
    for (number, reader) in readers.into_iter().enumerate() {
        counts[number % READERS as usize] += reader.await.unwrap();
    }
    let mut after_half = 0;
    for number in 0..PARTITIONS {
        let partition = partition(&client, &topic, number).await;
        let end = partition.get_offset(OffsetAt::Latest).await.unwrap();
        let from = partition.get_offset(OffsetAt::Timestamp(time_of(records / 2))).await.unwrap();
        if from >= 0 {
            read(&partition, from, || Some(end), |_| after_half += 1).await;
        }
    }
    let count = seen.lock().unwrap().len();
    println!("{{\"seen\": {count}, \"members\": {counts:?}, \"committed\": null, \"after_half\": {after_half}}}");
}
