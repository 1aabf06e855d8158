//! What happened at each hop, and whether the claims hold.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hop {
    Edge,
    A,
    B,
    Leaf,
}

/// A request at a hop.
pub(crate) struct Event {
    hop: Hop,
    call: u32,
    at: Instant,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    /// The hop sent an attempt to the next one.
    Sent,
    /// The hop received a request, and was told how much time is left. At the edge: a call began.
    Received(Option<Duration>),
}

impl Event {
    pub(crate) fn sent(hop: Hop, call: u32) -> Self {
        Self::new(hop, call, What::Sent)
    }

    pub(crate) fn received(hop: Hop, call: u32, left: Option<Duration>) -> Self {
        Self::new(hop, call, What::Received(left))
    }

    fn new(hop: Hop, call: u32, what: What) -> Self {
        let at = Instant::now();
        Self {
            hop,
            call,
            at,
            what,
        }
    }

    fn is_at_leaf(&self) -> bool {
        self.hop == Hop::Leaf
    }

    fn left(&self) -> Option<Duration> {
        match self.what {
            What::Received(left) => left,
            What::Sent => None,
        }
    }
}

/// A call of the edge's that was answered.
struct Answered {
    call: u32,
    started: Instant,
    ended: Instant,
    succeeded: bool,
}

/// All that happened in one run. Its clones are the same report.
#[derive(Clone)]
pub(crate) struct Report(Arc<Mutex<Records>>);

struct Records {
    started: Instant,
    down: Option<Instant>,
    up: Option<Instant>,
    events: Vec<Event>,
    answered: Vec<Answered>,
}

impl Report {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Records {
            started: Instant::now(),
            down: None,
            up: None,
            events: Vec::new(),
            answered: Vec::new(),
        })))
    }

    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().expect("nobody panics with the records")
    }

    pub(crate) fn leaf_goes_down(&self) {
        self.records().down = Some(Instant::now());
    }

    pub(crate) fn leaf_comes_back(&self) {
        self.records().up = Some(Instant::now());
    }

    pub(crate) fn add(&self, event: Event) {
        self.records().events.push(event);
    }

    pub(crate) fn answered(&self, call: u32, started: Instant, succeeded: bool) {
        self.records().answered.push(Answered {
            call,
            started,
            ended: Instant::now(),
            succeeded,
        });
    }

    pub(crate) fn print_head() {
        println!(
            "        |     edge     |            A             |            B             |        leaf"
        );
        println!(
            " second | calls  sent  | calls  sent   time left  | calls  sent   time left  | requests  time left"
        );
    }

    /// Prints what happened in a second: at each hop the calls it had to serve, the attempts that it
    /// sent, and the time left that it was told, the least and the median.
    pub(crate) fn print_second(&self, second: u32) {
        let records = self.records();
        let hop = |hop| records.hop(second, hop);
        let (edge, a, b, leaf) = (hop(Hop::Edge), hop(Hop::A), hop(Hop::B), hop(Hop::Leaf));
        println!(
            " {second:>6} | {:>5} {:>5}  | {:>5} {:>5} {:>11}  | {:>5} {:>5} {:>11}  | {:>8} {:>10}",
            edge.received,
            edge.sent,
            a.received,
            a.sent,
            a.left,
            b.received,
            b.sent,
            b.left,
            leaf.received,
            leaf.left,
        );
    }

    /// How many requests reached the leaf for a call of the outage, on average.
    pub(crate) fn leaf_requests_per_call(&self) -> f64 {
        let counts = self.records().leaf_requests_in_outage();
        let (calls, requests) = (counts.len(), counts.iter().sum::<usize>());
        match u32::try_from(requests).ok().zip(u32::try_from(calls).ok()) {
            Some((requests, calls)) if calls > 0 => f64::from(requests) / f64::from(calls),
            _ => f64::NAN,
        }
    }

    pub(crate) fn most_leaf_requests(&self) -> usize {
        let counts = self.records().leaf_requests_in_outage();
        counts.into_iter().max().unwrap_or(usize::MAX)
    }

    pub(crate) fn leaf_requests(&self) -> usize {
        let records = self.records();
        let at_leaf = records.events.iter().filter(|event| event.is_at_leaf());
        at_leaf.count()
    }

    /// Whether there were calls after the outage, and each of them succeeded.
    pub(crate) fn recovered(&self) -> bool {
        let records = self.records();
        let Some(up) = records.up else {
            return false;
        };
        let mut after = records.answered.iter().filter(|call| call.started >= up);
        let some = after.clone().count() > 0;
        some && after.all(|call| call.succeeded)
    }

    /// Whether in every call A was told of more time than B, and B of more than the leaf, when the
    /// call first came by.
    pub(crate) fn time_left_goes_down(&self) -> bool {
        let records = self.records();
        let first = |call: u32, hop: Hop| {
            let mut of_call = records.events.iter().filter(|event| event.call == call);
            of_call.find_map(|event| (event.hop == hop).then(|| event.left())?)
        };
        records.answered.iter().all(|answered| {
            let left = [Hop::A, Hop::B, Hop::Leaf].map(|hop| first(answered.call, hop));
            left.iter().all(Option::is_some) && left.is_sorted_by(|above, below| above > below)
        })
    }

    /// Whether the last request of every call of the outage told the leaf of more time than the
    /// edge had left.
    pub(crate) fn last_request_at_leaf_was_told_of_more_than_was_left(&self) -> bool {
        let records = self.records();
        records.in_outage().all(|answered| {
            let mut at_leaf = records.events.iter().filter(|event| event.is_at_leaf());
            let last = at_leaf.rfind(|event| event.call == answered.call);
            last.is_some_and(|last| {
                let used = last.at - answered.started;
                let left = crate::services::TOTAL_TIMEOUT.saturating_sub(used);
                last.left().is_some_and(|told| told > left)
            })
        })
    }
}

/// What one hop did in one second.
struct Row {
    received: usize,
    sent: usize,
    left: String,
}

impl Records {
    fn hop(&self, second: u32, hop: Hop) -> Row {
        let now = |event: &&Event| {
            let since = event.at - self.started;
            event.hop == hop && since.as_secs() == u64::from(second)
        };
        let (sent, received): (Vec<_>, Vec<_>) = self
            .events
            .iter()
            .filter(now)
            .partition(|event| matches!(event.what, What::Sent));
        let mut left: Vec<_> = received.iter().filter_map(|event| event.left()).collect();
        left.sort();
        let median = left.get(left.len() / 2);
        let left = match left.first().zip(median) {
            Some((least, median)) => format!("{}/{}", least.as_millis(), median.as_millis()),
            None => "-".to_owned(),
        };
        Row {
            received: received.len(),
            sent: sent.len(),
            left,
        }
    }

    /// The calls that began and ended in the outage.
    fn in_outage(&self) -> impl Iterator<Item = &Answered> {
        self.answered.iter().filter(|call| {
            let began = self.down.is_some_and(|down| call.started >= down);
            began && self.up.is_none_or(|up| call.ended < up)
        })
    }

    fn leaf_requests_in_outage(&self) -> Vec<usize> {
        let mut requests: BTreeMap<u32, usize> = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.is_at_leaf()) {
            *requests.entry(event.call).or_default() += 1;
        }
        self.in_outage()
            .map(|answered| requests.get(&answered.call).copied().unwrap_or(0))
            .collect()
    }
}

/// What the example says of the crate, and whether it is so.
#[derive(Default)]
pub(crate) struct Claims {
    broken: Vec<&'static str>,
}

impl Claims {
    pub(crate) fn check(&mut self, claim: &'static str, holds: bool) {
        println!("   {} {claim}", if holds { "ok:" } else { "NOT SO:" });
        if !holds {
            self.broken.push(claim);
        }
    }

    pub(crate) fn finish(self) -> Result<(), Box<dyn Error>> {
        if !self.broken.is_empty() {
            return Err(format!("claims that did not hold: {:?}", self.broken).into());
        }
        println!("All of it held.");
        Ok(())
    }
}
