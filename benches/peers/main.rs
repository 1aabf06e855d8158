//! What the layer costs, beside what people use now: the same request through the same inner service,
//! in one process and one run.
//!
//! ```text
//! cargo bench --bench peers
//! ```
//!
//! Cases take turns, round by round; the figures are medians over the rounds with their middle half.
//! What a layer *adds* is its time less that of the bare service in the same round. The last lines have
//! the form `ratio NAME VALUE`: what ours adds over what theirs adds, so lower is better.
//!
//! Times are taken with all features of the crate on and with an allocator that looks at a counter, the
//! same for everybody. Requests are made before the clock runs; their sending and their end are inside.

#![allow(missing_docs, unreachable_pub, reason = "not a library")]

mod budgets;
mod floor;
mod inner;
mod loopback;
mod measure;
mod request;
mod scale;
mod stacks;

use measure::{Group, Row};
use tokio::runtime::Builder;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let mut words = arguments.iter().map(String::as_str);
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(loopback::CLIENT), Some(client), Some(address), Some(calls)) => {
            let calls = calls.parse().expect("a number of requests");
            return loopback::run_client(client, address, calls);
        }
        (Some(loopback::SERVER), Some(server), None, None) => return loopback::run_server(server),
        _ => {}
    }
    if arguments.iter().any(|part| part == "budgets") {
        budgets::measure();
        return;
    }
    // Timers are armed, and never have to fire.
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let inside = runtime.enter();
    let groups = stacks::groups();
    let measured: Vec<_> = groups.into_iter().map(Group::run).collect();
    for (name, rows) in &measured {
        measure::print(name, rows);
    }
    scale::measure();
    drop(inside);
    let mut ratios = call_ratios(&measured);
    ratios.extend(budgets::measure());
    let bytes = budgets::bytes_of_keys(1_000_000);
    loopback::peers();
    ratios.extend(loopback::count());
    println!();
    for (name, value) in ratios {
        println!("ratio {name} {value:.2}");
    }
    println!("bytes keyed_budget_1m_keys {bytes}");
}

/// What ours adds over what theirs adds, for the calls of design and README.
fn call_ratios(measured: &[(&'static str, Vec<Row>)]) -> Vec<(&'static str, f64)> {
    let find = |group: &str, row: &str| {
        let (_, rows) = measured
            .iter()
            .find(|(name, _)| *name == group)
            .expect("a group of that name");
        let row = rows.iter().find(|found| found.name == row);
        row.expect("a row of that name")
    };
    let time = |group: &str, ours: &str, theirs: &str| {
        find(group, ours).added() / find(group, theirs).added()
    };
    let allocations = |group: &str, ours: &str, theirs: &str| {
        find(group, ours).added_allocations() / find(group, theirs).added_allocations()
    };
    let (owned, fixed, pending) = ("owned", "static", "owned, pending");
    vec![
        ("success_path_time", time(owned, "ours", "tower::retry")),
        (
            "success_path_time_static",
            time(fixed, "ours", "tower::retry"),
        ),
        (
            "success_path_allocs",
            allocations(owned, "ours", "tower::retry"),
        ),
        (
            "full_stack_time",
            time(pending, "ours, all on", "full stack"),
        ),
        (
            "full_stack_allocs",
            allocations(pending, "ours, all on", "full stack"),
        ),
        ("never_time", time(owned, "ours, Never", "tower::retry")),
        ("one_retry_time", time("one retry", "ours", "tower::retry")),
    ]
}
