//! Rounds, medians, and what a layer adds.

use allocation_counter::{AllocationInfo, opt_out};
use std::{
    future::Future,
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::time::Instant;

/// Enough for a median that two runs agree on to a few per cent.
const ROUNDS: usize = 300;

/// Long enough for a clock that counts in tens of nanoseconds, short enough to stay in the cache.
const CALLS: u32 = 64;

/// Nobody's allocations are in the first calls.
const WARM_UP: usize = 20;

/// Makes requests, and times or counts what becomes of them.
type Calls = Box<dyn FnMut(Mode) -> Sample>;

#[derive(Clone, Copy)]
enum Mode {
    Time,
    Count,
}

enum Sample {
    Nanos(f64),
    Allocations(AllocationInfo),
}

/// One stack under one kind of request.
pub struct Case {
    pub name: &'static str,
    calls: Calls,
}

impl Case {
    /// A case of calls that `send` makes. One of them may be several requests.
    pub fn new<T: 'static, F: Future>(
        name: &'static str,
        request: fn() -> T,
        mut send: impl FnMut(T) -> F + 'static,
    ) -> Self {
        let calls = move |mode| {
            let requests: Vec<_> = (0..CALLS).map(|_| request()).collect();
            let all = || {
                for request in requests {
                    black_box(finish(send(request)));
                }
            };
            match mode {
                Mode::Count => Sample::Allocations(allocation_counter::measure(all)),
                Mode::Time => {
                    let mut took = Duration::ZERO;
                    opt_out(|| {
                        let start = Instant::now();
                        all();
                        took = start.elapsed();
                    });
                    Sample::Nanos(nanos(took) / f64::from(CALLS))
                }
            }
        };
        Self {
            name,
            calls: Box::new(calls),
        }
    }
}

/// Polls a future to its end, at once whenever it is pending.
fn finish<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
}

pub fn nanos(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

/// Cases that are compared. The first one is the bare service.
pub struct Group {
    pub name: &'static str,
    pub cases: Vec<Case>,
}

/// What was measured of one case.
pub struct Row {
    pub name: &'static str,
    /// Nanoseconds of a call, in each round.
    times: Vec<f64>,
    /// What it is more than the bare service in the same round.
    added: Vec<f64>,
    allocations: f64,
    bytes: f64,
    added_allocations: f64,
}

impl Row {
    /// The nanoseconds that the layer adds to a call.
    pub fn added(&self) -> f64 {
        quantile(&self.added, 0.5)
    }

    /// The allocations that the layer adds to a call.
    pub fn added_allocations(&self) -> f64 {
        self.added_allocations
    }
}

impl Group {
    pub fn run(mut self) -> (&'static str, Vec<Row>) {
        for case in &mut self.cases {
            for _ in 0..WARM_UP {
                (case.calls)(Mode::Time);
            }
        }
        let mut times = vec![Vec::with_capacity(ROUNDS); self.cases.len()];
        for _ in 0..ROUNDS {
            for (case, times) in self.cases.iter_mut().zip(&mut times) {
                if let Sample::Nanos(took) = (case.calls)(Mode::Time) {
                    times.push(took);
                }
            }
        }
        let mut rows: Vec<Row> = Vec::new();
        for (case, times) in self.cases.iter_mut().zip(times) {
            let bare = rows.first();
            let counted = match (case.calls)(Mode::Count) {
                Sample::Allocations(counted) => counted,
                Sample::Nanos(_) => AllocationInfo::default(),
            };
            #[allow(clippy::cast_precision_loss, reason = "small numbers")]
            let per_call = |count: u64| count as f64 / f64::from(CALLS);
            let allocations = per_call(counted.count_total);
            let added = match bare {
                Some(bare) => times.iter().zip(&bare.times).map(|(a, b)| a - b).collect(),
                None => vec![0.0],
            };
            rows.push(Row {
                name: case.name,
                added,
                times,
                allocations,
                bytes: per_call(counted.bytes_total),
                added_allocations: allocations - bare.map_or(allocations, |bare| bare.allocations),
            });
        }
        (self.name, rows)
    }
}

pub fn print(group: &str, rows: &[Row]) {
    println!(
        "\n{group:24} {:>8} {:>17}  {:>7} {:>7}",
        "adds ns", "middle half", "allocs", "bytes"
    );
    for (at, row) in rows.iter().enumerate() {
        let figures = if at == 0 { &row.times } else { &row.added };
        let [low, middle, high] = [0.25, 0.5, 0.75].map(|share| quantile(figures, share));
        let note = if at == 0 { "  (itself)" } else { "" };
        let spread = format!("{low:.0} to {high:.0}");
        println!(
            "  {:22} {middle:8.0} {spread:>17}  {:7.1} {:7.0}{note}",
            row.name, row.allocations, row.bytes
        );
    }
}

/// The value below which this share of the figures is.
pub fn quantile(figures: &[f64], share: f64) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an index"
    )]
    let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(f64::NAN)
}
