//! Servers: when a request that reaches one now is answered, and with what.
//!
//! Every model decides that when the request arrives. What it decided happens, also when the caller
//! has gone meanwhile: like most servers, none of these learns of that.

use super::random::Random;
use http::{HeaderMap, Request, StatusCode, Uri};
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// A request that has reached the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) at: Duration,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
}

impl<'a> Ask<'a> {
    pub(crate) fn new<B>(request: &'a Request<B>, at: Duration) -> Self {
        Self {
            at,
            uri: request.uri(),
            headers: request.headers(),
        }
    }
}

/// What the server answers, and when that leaves it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) at: Duration,
    pub(crate) retry_after: Option<Duration>,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, at: Duration) -> Self {
        Self {
            status,
            at,
            retry_after: None,
        }
    }
}

pub(crate) trait Server: Send {
    fn arrive(&mut self, ask: Ask<'_>) -> Answer;

    /// The requests inside at that time.
    fn queued(&mut self, _: Duration) -> usize {
        0
    }
}

impl<F: FnMut(Ask<'_>) -> Answer + Send> Server for F {
    fn arrive(&mut self, ask: Ask<'_>) -> Answer {
        self(ask)
    }
}

/// Answers after a random time of `mean`, with what `status` says of the request and of chance. It
/// never has too much to do.
pub(crate) fn ample(
    seed: u64,
    mean: Duration,
    mut status: impl FnMut(Ask<'_>, &mut Random) -> StatusCode + Send + 'static,
) -> Box<dyn Server> {
    let mut random = Random::new(seed, "server");
    Box::new(move |ask: Ask<'_>| {
        let took = random.exponential(mean);
        Answer::new(status(ask, &mut random), ask.at + took)
    })
}

/// Does `capacity` requests per second and rejects the rest at once, which costs it a fifth of a
/// request each. It answers after a random time of `mean`.
pub(crate) fn rejecting(seed: u64, capacity: f64, mean: Duration) -> Box<dyn Server> {
    /// What may wait inside the server: as much as it does in this part of a second.
    const SHARE_QUEUED: f64 = 0.05;
    const COST_OF_REJECTION: f64 = 0.2;

    let mut random = Random::new(seed, "server");
    let (mut queued, mut last) = (0.0_f64, Duration::ZERO);
    Box::new(move |ask: Ask<'_>| {
        let passed = ask.at.saturating_sub(last);
        last = last.max(ask.at);
        queued = (queued - passed.as_secs_f64() * capacity).max(0.0);
        let (cost, status) = match queued < capacity * SHARE_QUEUED {
            true => (1.0, StatusCode::OK),
            false => (COST_OF_REJECTION, StatusCode::SERVICE_UNAVAILABLE),
        };
        queued += cost;
        Answer::new(status, ask.at + random.exponential(mean))
    })
}

/// Takes longer the more it has to do: `idle`, and `each` for every request inside.
pub(crate) struct Congested {
    pub(crate) idle: Duration,
    pub(crate) each: Duration,
    inside: BinaryHeap<Reverse<Duration>>,
}

impl Congested {
    pub(crate) fn new(idle: Duration, each: Duration) -> Self {
        let inside = BinaryHeap::new();
        Self { idle, each, inside }
    }
}

impl Server for Congested {
    fn arrive(&mut self, ask: Ask<'_>) -> Answer {
        let inside = self.queued(ask.at) as f64;
        let ends = ask.at + self.idle + self.each.mul_f64(inside);
        self.inside.push(Reverse(ends));
        Answer::new(StatusCode::OK, ends)
    }

    fn queued(&mut self, at: Duration) -> usize {
        leave(&mut self.inside, at);
        self.inside.len()
    }
}

/// A queue before `workers`, each busy with one request for a random time. What finds the queue full
/// is rejected after `rejecting_takes`, which a worker is kept from its work for.
pub(crate) struct Queue {
    /// What the server is like at a time.
    state: Box<dyn FnMut(Duration) -> State + Send>,
    mean: Duration,
    limit: usize,
    rejecting_takes: Duration,
    random: Random,
    /// When each worker is free.
    free: BinaryHeap<Reverse<Duration>>,
    inside: BinaryHeap<Reverse<Duration>>,
}

/// What a server is like for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    /// Works so many times slower than when it is well.
    Slow(f64),
    /// Answers every request with a failure, at once.
    Down(StatusCode),
    /// Answers like this, at once, and names a time to come back in.
    ComeBackIn(StatusCode, Duration),
}

impl State {
    pub(crate) const WELL: Self = Self::Slow(1.0);
}

impl Queue {
    pub(crate) fn new(
        seed: u64,
        workers: usize,
        mean: Duration,
        limit: usize,
        state: impl FnMut(Duration) -> State + Send + 'static,
    ) -> Self {
        Self {
            state: Box::new(state),
            mean,
            limit,
            rejecting_takes: mean / 5,
            random: Random::new(seed, "server"),
            free: (0..workers).map(|_| Reverse(Duration::ZERO)).collect(),
            inside: BinaryHeap::new(),
        }
    }

    /// Gives the worker that is free first so much to do, and says when that is done.
    fn work(&mut self, at: Duration, takes: Duration) -> Duration {
        let Reverse(free) = self.free.pop().unwrap_or_default();
        let ends = free.max(at) + takes;
        self.free.push(Reverse(ends));
        ends
    }
}

impl Server for Queue {
    fn arrive(&mut self, ask: Ask<'_>) -> Answer {
        let slow = match (self.state)(ask.at) {
            State::Slow(times) => times,
            State::Down(status) => return Answer::new(status, ask.at),
            State::ComeBackIn(status, after) => {
                return Answer {
                    retry_after: Some(after),
                    ..Answer::new(status, ask.at)
                };
            }
        };
        if self.queued(ask.at) >= self.limit {
            self.work(ask.at, self.rejecting_takes);
            return Answer::new(StatusCode::SERVICE_UNAVAILABLE, ask.at + self.rejecting_takes);
        }
        let takes = self.random.exponential(self.mean).mul_f64(slow);
        let ends = self.work(ask.at, takes);
        self.inside.push(Reverse(ends));
        Answer::new(StatusCode::OK, ends)
    }

    fn queued(&mut self, at: Duration) -> usize {
        leave(&mut self.inside, at);
        self.inside.len()
    }
}

/// Takes out what has ended.
fn leave(inside: &mut BinaryHeap<Reverse<Duration>>, at: Duration) {
    while inside.peek().is_some_and(|Reverse(ends)| *ends <= at) {
        inside.pop();
    }
}
