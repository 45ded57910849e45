// A worker of a consumer group with ureq and serde_json.
// usage: PENSTOCK_URL=http://127.0.0.1:8080 cargo run -- GROUP TOPIC MEMBER
// It does not leave the group at its end: the other members get its partitions after its session.
use serde_json::{json, Value};
use std::{env, thread::sleep, time::Duration};

/// Returns an answer or a problem, which has a code.
fn poll(agent: &ureq::Agent, url: &str, topic: &str, token: &str) -> Result<Value, ureq::Error> {
    let body = json!({"topics": [topic], "token": token, "wait_ms": 20000});
    agent.post(url).send_json(body)?.body_mut().read_json()
}

fn work(record: &Value) {
    println!("{}", record["value"]);
}

fn main() {
    let arguments: Vec<String> = env::args().collect();
    let [_, group, topic, member] = &arguments[..] else {
        panic!("usage: worker GROUP TOPIC MEMBER")
    };
    let url = format!("{}/v1/groups/{group}/members/{member}/poll", env::var("PENSTOCK_URL").unwrap());
    let settings = ureq::Agent::config_builder().http_status_as_error(false);
    let agent = ureq::Agent::new_with_config(settings.timeout_global(Some(Duration::from_secs(30))).build());
    let mut token = String::new();
    loop {
        let Ok(answer) = poll(&agent, &url, topic, &token) else {
            sleep(Duration::from_secs(1));
            continue; // the same request once more
        };
        if answer["code"] == "stale_token" {
            token.clear();
            continue;
        }
        let Some(next) = answer["token"].as_str() else {
            eprintln!("{}", answer["detail"]);
            sleep(Duration::from_secs(1));
            continue;
        };
        for partition in answer["partitions"].as_array().unwrap() {
            for record in partition["records"].as_array().into_iter().flatten() {
                work(record);
            }
        }
        token = next.to_string(); // the next poll commits these records
    }
}
