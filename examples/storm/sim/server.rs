//! Servers: when a request that reaches one now is answered, and with what.
//!
//! Every model decides that when the request arrives. What it decided happens, also when the caller
//! has gone meanwhile: like most servers, none of these learns of that.

use super::random::{Delay, Random};
use http::{HeaderMap, Request, StatusCode, Uri};
use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

/// A request that has reached the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) at: Duration,
    pub(crate) uri: &'a Uri,
    #[allow(dead_code, reason = "what was stamped on it is for a test to see")]
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

/// Answers after a random time, with what `status` says of the request and of chance. It
/// never has too much to do.
pub(crate) fn ample(
    seed: u64,
    latency: Delay,
    mut status: impl FnMut(Ask<'_>, &mut Random) -> StatusCode + Send + 'static,
) -> Box<dyn Server> {
    let mut random = Random::new(seed, "server");
    Box::new(move |ask: Ask<'_>| {
        let took = latency.draw(&mut random);
        Answer::new(status(ask, &mut random), ask.at + took)
    })
}

/// Does `capacity` requests per second and rejects the rest at once: at random, the share that is too
/// much by the traffic of the last `notices` seconds. A rejection costs it `cost` of a request. It answers
/// after a random time.
pub(crate) fn shedding(
    seed: u64,
    capacity: f64,
    latency: Delay,
    cost: f64,
    notices: f64,
) -> Box<dyn Server> {
    let mut random = Random::new(seed, "server");
    // Requests per second, as an average in which older ones count ever less.
    let (mut rate, mut last) = (0.0_f64, Duration::ZERO);
    Box::new(move |ask: Ask<'_>| {
        let passed = ask.at.saturating_sub(last).as_secs_f64();
        last = last.max(ask.at);
        rate = rate * (-passed / notices).exp() + 1.0 / notices;
        let too_much = (rate - capacity) / (rate * (1.0 - cost));
        let status = match random.happens(too_much) {
            true => StatusCode::SERVICE_UNAVAILABLE,
            false => StatusCode::OK,
        };
        Answer::new(status, ask.at + latency.draw(&mut random))
    })
}

/// Takes longer the more it has to do: on average `idle`, and `each` for every request inside.
pub(crate) struct Congested {
    idle: Duration,
    each: Duration,
    random: Random,
    inside: BinaryHeap<Reverse<Duration>>,
}

impl Congested {
    pub(crate) fn new(seed: u64, idle: Duration, each: Duration) -> Self {
        Self {
            idle,
            each,
            random: Random::new(seed, "server"),
            inside: BinaryHeap::new(),
        }
    }
}

impl Server for Congested {
    fn arrive(&mut self, ask: Ask<'_>) -> Answer {
        let inside = self.queued(ask.at) as f64;
        let mean = self.idle + self.each.mul_f64(inside);
        let ends = ask.at + Delay::Erlang(mean).draw(&mut self.random);
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
    state: Box<dyn Fn(Duration) -> State + Send>,
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
    /// Answers this share of the requests with a failure, at once.
    Partly(StatusCode, f64),
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
        state: impl Fn(Duration) -> State + Send + 'static,
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

    /// Gives the worker that is free first so much to do, at the speed of the time at which it begins,
    /// and says when that is done.
    fn work(&mut self, at: Duration, takes: Duration) -> Duration {
        let Reverse(free) = self.free.pop().unwrap_or_default();
        let begins = free.max(at);
        let slow = match (self.state)(begins) {
            State::Slow(times) => times,
            _ => 1.0,
        };
        let ends = begins + takes.mul_f64(slow);
        self.free.push(Reverse(ends));
        ends
    }
}

impl Server for Queue {
    fn arrive(&mut self, ask: Ask<'_>) -> Answer {
        match (self.state)(ask.at) {
            State::Slow(_) => {}
            State::Down(status) => return Answer::new(status, ask.at),
            State::Partly(status, share) if self.random.happens(share) => {
                return Answer::new(status, ask.at);
            }
            State::Partly(..) => {}
            State::ComeBackIn(status, after) => {
                return Answer {
                    retry_after: Some(after),
                    ..Answer::new(status, ask.at)
                };
            }
        }
        if self.queued(ask.at) >= self.limit {
            self.work(ask.at, self.rejecting_takes);
            return Answer::new(
                StatusCode::SERVICE_UNAVAILABLE,
                ask.at + self.rejecting_takes,
            );
        }
        let takes = self.random.exponential(self.mean);
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
