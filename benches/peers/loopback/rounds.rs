//! Times, pair by pair.
//!
//! Each case has its client and its server on one thread, and all cases have the same thread. Where the
//! operating system would put two threads makes more of a difference than any layer does.

use super::{app, caller::Caller, listen, runtime};
use crate::measure::{nanos, quantile};
use tokio::{runtime::Runtime, task::JoinSet, time::Instant};

const ROUNDS: usize = 40;
const CALLS: usize = 320;

/// A client and the server that it calls.
pub struct Case {
    name: &'static str,
    runtime: Runtime,
    caller: Caller,
    uri: String,
    /// Microseconds of a request, in each round.
    times: Vec<f64>,
}

impl Case {
    pub fn new(name: &'static str, client: &str, server: &str) -> Self {
        let runtime = runtime();
        let (listener, address) = runtime.block_on(listen());
        let app = app(server);
        runtime.spawn(async move { axum::serve(listener, app).await });
        let caller = runtime.block_on(async { Caller::new(client) });
        Self {
            name,
            runtime,
            caller,
            uri: format!("http://{address}/"),
            times: Vec::with_capacity(ROUNDS),
        }
    }

    /// The microseconds of a request in a round of them, of which so many are under way at a time.
    fn round(&self, in_flight: usize) -> f64 {
        let each = CALLS / in_flight;
        self.runtime.block_on(async {
            let start = Instant::now();
            let mut tasks = JoinSet::new();
            for _ in 0..in_flight {
                let (mut caller, uri) = (self.caller.clone(), self.uri.clone());
                tasks.spawn(async move {
                    for _ in 0..each {
                        caller.send(&uri).await;
                    }
                });
            }
            tasks.join_all().await;
            #[allow(clippy::cast_precision_loss, reason = "a small number")]
            let calls = (each * in_flight) as f64;
            nanos(start.elapsed()) / 1000.0 / calls
        })
    }
}

/// Prints the times of cases that take turns.
pub fn compare(title: &str, mut cases: Vec<Case>, in_flight: usize) {
    for round in 0..=ROUNDS {
        for case in &mut cases {
            let took = case.round(in_flight);
            // The first round opens the connections.
            if round > 0 {
                case.times.push(took);
            }
        }
    }
    let title = format!("{title}, {in_flight} at a time");
    println!("\n{title:34} {:>8} {:>17}", "µs each", "middle half");
    for case in cases {
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| quantile(&case.times, share));
        let spread = format!("{low:.1} to {high:.1}");
        println!("  {:32} {middle:8.1} {spread:>17}", case.name);
    }
}
