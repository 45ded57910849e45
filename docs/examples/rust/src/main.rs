//! JSON lines from stdin into one partition, each exactly once and in their order. Needs ureq, for HTTP, and nothing else.
//!     cargo run --release -- URL TOPIC PARTITION <lines
//! Producer ids and sequences as in docs/produce.md, one request at a time.
//! Says where each batch is stored; ends with 0 only if all are.

use std::io::BufRead;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const GIVE_UP: Duration = Duration::from_secs(600);
const SEQUENCES: u64 = 1 << 31; // after 2^31-1 comes 0

struct Answer {
    status: u16,
    retry_after_s: u64,
    body: String,
}

struct Producer {
    agent: ureq::Agent,
    records: String,
    id: String,
    epoch: String,
    sequence: u64,
    stored: usize, // lines
}

impl Producer {
    fn new(url: &str, topic: &str, partition: &str) -> Result<Self, String> {
        let settings = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(40)));
        let agent = ureq::Agent::new_with_config(settings.build());
        let answer = answered(|| attempt(agent.post(format!("{url}/v1/producers")), &[]))?;
        match (answer.status, member(&answer.body, "producer_id"), member(&answer.body, "producer_epoch")) {
            (201, Some(id), Some(epoch)) => Ok(Producer {
                records: format!("{url}/v1/topics/{topic}/partitions/{partition}/records"),
                id: id.to_string(),
                epoch: epoch.to_string(),
                sequence: 0,
                stored: 0,
                agent,
            }),
            _ => Err(format!("no producer id: {}", answer.body)),
        }
    }

    /// Stores a batch and says where. An error: it is refused for good, or nobody knows what became of it.
    fn store(&mut self, lines: &[String]) -> Result<String, String> {
        let body = lines.join("\n") + "\n";
        let answer = answered(|| {
            let request = self
                .agent
                .post(&self.records)
                .header("Content-Type", "application/x-ndjson")
                .header("Producer-Id", &self.id)
                .header("Producer-Epoch", &self.epoch)
                .header("Producer-Seq", self.sequence.to_string());
            attempt(request, body.as_bytes())
        })?;
        let which = format!("lines {}-{}", self.stored + 1, self.stored + lines.len());
        self.sequence = (self.sequence + lines.len() as u64) % SEQUENCES;
        self.stored += lines.len();
        match (answer.status, member(&answer.body, "base_offset"), member(&answer.body, "code")) {
            (200, Some(offset), _) => Ok(format!("stored {which} at {offset}")),
            (_, _, Some("duplicate_older_than_window")) => Ok(format!("stored {which}")),
            _ => Err(format!("refused for good: {}", answer.body)),
        }
    }
}

/// One try. None: there was no whole answer, and nobody knows whether the request was carried out.
fn attempt(request: ureq::RequestBuilder<ureq::typestate::WithBody>, body: &[u8]) -> Option<Answer> {
    let mut reply = request.send(body).ok()?;
    let retry_after = reply.headers().get("Retry-After").and_then(|value| value.to_str().ok()?.parse().ok());
    Some(Answer {
        status: reply.status().as_u16(),
        retry_after_s: retry_after.unwrap_or(0),
        body: reply.body_mut().read_to_string().ok()?,
    })
}

/// The first answer that asking again would not change.
fn answered(attempt: impl Fn() -> Option<Answer>) -> Result<Answer, String> {
    let since = Instant::now();
    let mut backoff_ms = 50;
    while since.elapsed() < GIVE_UP {
        let mut asked_s = 0;
        if let Some(answer) = attempt() {
            if !matches!(answer.status, 408 | 429 | 500..) {
                return Ok(answer);
            }
            asked_s = answer.retry_after_s;
        }
        let pause_ms = if asked_s > 0 { asked_s * 1000 } else { backoff_ms / 2 + jitter() % backoff_ms };
        sleep(Duration::from_millis(pause_ms));
        backoff_ms = (backoff_ms * 2).min(2000);
    }
    Err("gave up: the batch may be stored or not".to_string())
}

/// Something that differs between producers that failed together.
fn jitter() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| u64::from(age.subsec_nanos()) / 1000)
}

/// A number or a plain string of a JSON document, without a JSON library.
fn member<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let name = format!("\"{name}\":");
    let value = json[json.find(&name)? + name.len()..].trim_start_matches('"');
    value.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).next()
}

fn produce(arguments: &[String]) -> Result<(), String> {
    let [_, url, topic, partition] = arguments else {
        return Err("usage: produce URL TOPIC PARTITION <lines".to_string());
    };
    let batch_lines = std::env::var("BATCH_LINES").ok().and_then(|text| text.parse().ok()).unwrap_or(100);
    let mut producer = Producer::new(url, topic, partition)?;
    let mut lines = Vec::new();
    for line in std::io::stdin().lock().lines() {
        lines.push(line.map_err(|error| error.to_string())?);
        if lines.len() == batch_lines {
            println!("{}", producer.store(&lines)?);
            lines.clear();
        }
    }
    if !lines.is_empty() {
        println!("{}", producer.store(&lines)?);
    }
    Ok(())
}

fn main() -> ExitCode {
    match produce(&std::env::args().collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
