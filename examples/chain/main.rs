//! What a chain of services does to its leaf: `cargo run --example chain`.
//!
//! An edge client calls service A, which calls service B, which calls the leaf, all of them real
//! servers on loopback. Each of the three callers may make three attempts. The leaf fails for two of
//! five seconds.
//!
//! The same load and the same outage are run twice. The only difference is one line in A and B:
//! `.layer(DeadlineLayer::new())`. Budgets are ample, so that nothing else limits the retries.
//!
//! A row is printed for every second, and every claim is checked: the exit status is 0 only if all of
//! them hold.

mod report;
mod services;

use report::{Claims, Report};
use services::{Chain, TOTAL_TIMEOUT};
use std::{error::Error, time::Duration};
use tokio::time::{MissedTickBehavior, interval};

/// How often the edge calls: 20 times a second, for 5 seconds.
const EVERY: Duration = Duration::from_millis(50);
const CALLS: u32 = 100;

/// The leaf fails from one of these calls to the other: from 1 s to 3 s.
const DOWN: u32 = 20;
const UP: u32 = 60;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    println!(
        "edge client -> service A -> service B -> leaf: 3 attempts each, ample budgets, 20 calls a second,"
    );
    println!(
        "{} ms for a call. The leaf fails in the seconds 1 and 2.",
        TOTAL_TIMEOUT.as_millis()
    );
    let mut claims = Claims::default();

    println!("\nWithout: A and B do not read what they are told.\n");
    let without = run(false).await?;
    claims.check(
        "in the outage a call sent about 27 requests to the leaf (3 x 3 x 3)",
        (25.0..=27.0).contains(&without.leaf_requests_per_call()),
    );
    claims.check(
        "every layer began a time of its own, however little the edge had left",
        without.last_request_at_leaf_was_told_of_more_than_was_left(),
    );
    claims.check("after the outage every call succeeded", without.recovered());

    println!("\nWith: A and B have a DeadlineLayer.\n");
    let with = run(true).await?;
    claims.check(
        "in the outage no call sent more than 3 requests to the leaf",
        with.most_leaf_requests() <= 3,
    );
    claims.check(
        "most of them sent just 3: the edge retried, A and B did not",
        with.leaf_requests_per_call() > 2.5,
    );
    claims.check(
        "the time left went down hop by hop, in every call",
        with.time_left_goes_down(),
    );
    claims.check("after the outage every call succeeded", with.recovered());

    println!(
        "\nRequests at the leaf per call in the outage: {:.1} without, {:.1} with.",
        without.leaf_requests_per_call(),
        with.leaf_requests_per_call(),
    );
    println!(
        "Requests at the leaf in all: {} without, {} with, for {CALLS} calls.",
        without.leaf_requests(),
        with.leaf_requests(),
    );
    claims.finish()
}

/// Runs the load through a chain of its own, and prints a row for every second.
async fn run(cooperate: bool) -> Result<Report, Box<dyn Error>> {
    let chain = Chain::start(cooperate).await?;
    let report = chain.report().clone();
    Report::print_head();
    let mut calls = Vec::new();
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for call in 0..CALLS {
        ticks.tick().await;
        if call == DOWN {
            chain.leaf_goes_down();
        } else if call == UP {
            chain.leaf_comes_back();
        }
        if call % 20 == 5 && call > 20 {
            // A quarter of a second late, when the events of the second before are all there.
            report.print_second(call / 20 - 1);
        }
        calls.push(chain.call(call));
    }
    for call in calls {
        call.await?;
    }
    report.print_second(CALLS / 20 - 1);
    Ok(report)
}
