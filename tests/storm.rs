//! What the simulator of `examples/storm` promises: that it runs the crate's own layer, through its
//! public API and nothing else, and that the same seed gives the same bytes.
//!
//! The simulator is compiled into this test as it is. Neither is part of the crate, so neither sees more
//! of it than a user does.

#![allow(dead_code, unreachable_pub)]

#[path = "../examples/storm/config.rs"]
mod config;
#[path = "../examples/storm/plot.rs"]
mod plot;
#[path = "../examples/storm/progress.rs"]
mod progress;
#[path = "../examples/storm/report.rs"]
mod report;
#[path = "../examples/storm/rules/mod.rs"]
mod rules;
#[path = "../examples/storm/scenarios/mod.rs"]
mod scenarios;
#[path = "../examples/storm/sim/mod.rs"]
mod sim;

use http::StatusCode;
use progress::Progress;
use rules::{Policy, Rule};
use scenarios::Lab;
use sim::{Answer, Ask, Delay, Run, Server, Setup, ample};
use std::{
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};
use tower_retry_budget::deadline::{RETRY_ATTEMPT, RetryAttempt};

const SECOND: Duration = Duration::from_secs(1);

fn small() -> Setup {
    let mut setup = Setup::new(100.0, 2, 3 * SECOND);
    setup.policy = Policy::model();
    setup
}

/// Two of three attempts fail.
fn unlucky(seed: u64) -> Box<dyn Server> {
    let latency = Delay::Exponential(Duration::from_millis(20));
    ample(seed, latency, |_, random| match random.happens(0.66) {
        true => StatusCode::INTERNAL_SERVER_ERROR,
        false => StatusCode::OK,
    })
}

fn printed(name: &str, seed: u64) -> String {
    let scenario = scenarios::ALL.iter().find(|known| known.name == name);
    let scenario = scenario.expect("a scenario of that name");
    let report = (scenario.run)(&Lab {
        scenario: scenario.name,
        seeds: &[seed],
        progress: &Progress::default(),
    });
    report.to_string()
}

fn happened(run: &Run) -> String {
    format!("{:?} {:?}", run.calls, run.requests)
}

#[test]
fn prints_the_same_bytes_for_the_same_seed() {
    let once = printed("brooker-collapse", 7);
    assert_eq!(once, printed("brooker-collapse", 7));
    assert_ne!(once, printed("brooker-collapse", 8));
}

#[test]
fn does_the_same_for_the_same_seed_under_every_rule() {
    let own = Rule::Own {
        ratio: 0.1,
        cap: 10,
        initial: 5,
    };
    let rules = [
        Rule::NoRetries,
        Rule::Unlimited,
        Rule::TowerTps,
        Rule::Finagle,
        Rule::BucketOfSuccesses,
        Rule::BucketOfCalls,
        Rule::Grpc,
        Rule::Aws,
        Rule::Envoy,
        Rule::Breaker,
        Rule::RefundAll,
        Rule::Default,
        Rule::DefaultRefundingAll,
        Rule::HoldOff,
        Rule::TenthOfCalls,
        Rule::Fleet,
        own,
    ];
    for rule in rules {
        let run = || small().run(rule, unlucky(3), 3);
        assert_eq!(happened(&run()), happened(&run()), "{rule}");
    }
}

/// Every attempt that reaches the server carries what the layer stamps on it, so that none was made by
/// anything else; and retries arrive exactly as often as the real budget says that it paid for them.
#[test]
fn sends_nothing_that_the_layer_did_not_send() {
    let seen: Arc<Mutex<Vec<RetryAttempt>>> = Arc::default();
    let record = Arc::clone(&seen);
    let server = move |ask: Ask<'_>| {
        let stamp = ask
            .headers
            .get(RETRY_ATTEMPT)
            .expect("stamped by the layer");
        let attempt = RetryAttempt::parse(stamp).expect("a stamp of the layer");
        record.lock().expect("no panic inside").push(attempt);
        Answer::new(StatusCode::INTERNAL_SERVER_ERROR, ask.at)
    };
    let run = small().run(Rule::Default, Box::new(server), 1);
    let seen = seen.lock().expect("no panic inside");
    let first = seen.iter().filter(|attempt| !attempt.is_retry()).count();
    assert_eq!(seen.len(), run.requests.len());
    assert_eq!(first, run.calls.len());
    // Two clients, in whose outage nothing was ever earned: 5 retries each.
    assert_eq!(seen.len() - first, 10);
    assert!(seen.iter().all(|attempt| attempt.max() == Some(3)));
}

#[test]
fn contains_no_source_of_the_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/storm");
    let mut folders = vec![root];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).expect("text");
                for way in ["#[path", "include!", "include_str!"] {
                    assert!(!text.contains(way), "{} has {way}", path.display());
                }
                files += 1;
            }
        }
    }
    assert!(files > 10, "{files}");
}

const EXAMPLE: &str = include_str!("../examples/storm/example.toml");

#[test]
fn reads_the_example_of_a_configuration() {
    let config = config::Config::parse(EXAMPLE).expect("a valid file");
    assert_eq!(config.bad(), 15 * SECOND..25 * SECOND);
}

#[test]
fn names_line_and_field_of_what_it_does_not_understand() {
    for (from, to, line, field) in [
        ("workers = 10", "workers = 0", "line 11", "workers"),
        ("workers = 10", "workers = 1.5", "line 11", "workers"),
        (
            "begins_s = 15",
            "begins_s = \"soon\"",
            "line 17",
            "begins_s",
        ),
        ("times = 5 ", "tmies = 5 ", "line 19", "tmies"),
        ("\"slow\" ", "\"sluggish\" ", "line 16", "kind"),
        (
            "max_attempts = 4",
            "max_attempts = 0",
            "line 24",
            "max_attempts",
        ),
        ("ratio = 0.1", "ratio = -1", "line 28", "ratio"),
        ("cap = 10", "cap = 2", "line 23", "initial"),
        ("processes = 20", "", "line 3", "processes"),
    ] {
        let text = EXAMPLE.replacen(from, to, 1);
        assert_ne!(text, EXAMPLE, "{from}");
        let error = config::Config::parse(&text)
            .expect_err("not valid")
            .to_string();
        assert!(
            error.contains(line) && error.contains(field),
            "{to}: {error}"
        );
    }
}
