//! The simulation: clients, a network and a server, on one thread and on a clock that stands still
//! until all of them wait.
//!
//! What retries is not simulated: see [`rules`](crate::rules). Tokio's timer wakes at whole
//! milliseconds, never early, so that every wait of a client is up to 1 ms too long, and half of that
//! on average. The times at which the server works are exact.

mod chain;
mod network;
mod random;
mod record;
mod server;

pub(crate) use self::{
    chain::{Chain, Sent, Watch, ask},
    network::{Body, Link, Place, lock},
    random::{Delay, Random},
    record::{CallRecord, Run},
    server::{Answer, Ask, Congested, Queue, Server, State, ample, shedding},
};
use crate::rules::{Client, Policy, Rule};
use http::{Request, Uri};
use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    runtime::Builder,
    time::{Instant, sleep, sleep_until},
};
use tower::{Layer, ServiceExt};
use tower_retry_budget::{RetryBudgetLayer, RetryPolicy};

/// How often a run that is over looks whether the last calls have ended.
const LOOK: Duration = Duration::from_millis(10);

/// When calls begin.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrivals {
    /// At random, so many per second, whatever becomes of the others.
    Open(f64),
    /// The same, with another number per second from the one time to the other.
    Surge {
        rps: f64,
        surge: f64,
        from: Duration,
        to: Duration,
    },
    /// So many users, each of whom calls, waits for the end of it, and thinks for a random time.
    Closed { users: usize, think: Duration },
}

impl Arrivals {
    fn rps(self, at: Duration) -> f64 {
        match self {
            Self::Open(rps) => rps,
            Self::Surge {
                surge, from, to, ..
            } if at >= from && at < to => surge,
            Self::Surge { rps, .. } => rps,
            Self::Closed { .. } => 0.0,
        }
    }
}

/// So many processes more from the one time to the other; the traffic stays the same.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    pub(crate) processes: usize,
    pub(crate) over: Range<Duration>,
}

impl Joining {
    /// How many have joined.
    fn joined(&self, at: Duration) -> usize {
        let gap =
            (self.over.end - self.over.start) / u32::try_from(self.processes).unwrap_or(u32::MAX);
        let since = at.saturating_sub(self.over.start).as_nanos();
        let joined = since.checked_div(gap.as_nanos()).unwrap_or(u128::MAX);
        usize::try_from(joined).map_or(self.processes, |joined| joined.min(self.processes))
    }
}

/// Who calls whom, how, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) arrivals: Arrivals,
    /// The processes that the calls are split over, at random, each with a layer of its own.
    pub(crate) clients: usize,
    /// Processes that join later, evenly over a time. A scale-out.
    pub(crate) joining: Option<Joining>,
    pub(crate) network: Delay,
    pub(crate) policy: Policy,
    /// Calls begin for this long.
    pub(crate) span: Duration,
    /// How long the last calls are waited for after that.
    pub(crate) patience: Duration,
    /// The part of the calls that is for `/broken`.
    pub(crate) broken: f64,
}

impl Setup {
    pub(crate) fn new(rps: f64, clients: usize, span: Duration) -> Self {
        Self {
            arrivals: Arrivals::Open(rps),
            clients,
            joining: None,
            network: Delay::None,
            policy: Policy::default(),
            span,
            patience: Duration::from_secs(120),
            broken: 0.0,
        }
    }

    /// Runs it. Nothing but the arguments decides what happens.
    pub(crate) fn run(&self, rule: Rule, server: Box<dyn Server>, seed: u64) -> Run {
        paused(seed, self.drive(rule, server, seed))
    }

    async fn drive(&self, rule: Rule, server: Box<dyn Server>, seed: u64) -> Run {
        let start = Instant::now();
        let place = Arc::new(Mutex::new(Place::new(self.network, server, seed)));
        let joining = self.joining.as_ref().map_or(0, |more| more.processes);
        let clients = rule.clients(self.clients + joining, &self.policy, seed, || {
            Link::new(Arc::clone(&place), start)
        });
        let running = |at| {
            let joined = self.joining.as_ref().map_or(0, |more| more.joined(at));
            self.clients + joined
        };
        let mut world = World {
            clients,
            place: Arc::clone(&place),
            start,
            end: self.span,
            broken: self.broken,
            random: Random::new(seed, "arrivals"),
        };
        match self.arrivals {
            Arrivals::Closed { users, think } => world.closed(users, think).await,
            open => world.open(|at| open.rps(at), running).await,
        }
        let last = start + self.span + self.patience;
        while lock(&place).record.open() > 0 && Instant::now() < last {
            sleep(LOOK).await;
        }
        let mut run = lock(&place).record.take();
        run.span = self.span;
        run
    }
}

/// Runs a future on a clock that stands still until everybody waits.
pub(crate) fn paused<F: Future>(seed: u64, future: F) -> F::Output {
    // The crate's own randomness that has no seed: the spread of a `Retry-After`.
    fastrand::seed(seed);
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.expect("a runtime without I/O").block_on(future)
}

/// Makes one call of the real layer, with a budget that does not end, and says when each attempt reached
/// the server.
pub(crate) fn attempts_of_one_call(
    policy: RetryPolicy,
    server: impl Server + 'static,
) -> Vec<Duration> {
    paused(0, async move {
        let place = Arc::new(Mutex::new(Place::new(Delay::None, Box::new(server), 0)));
        let link = Link::new(Arc::clone(&place), Instant::now());
        let layer = RetryBudgetLayer::new()
            .policy(policy)
            .shared_budget(Rule::Unlimited.budget(&link));
        let Ok(_) = layer.layer(link).oneshot(request(false)).await;
        lock(&place).record.take().requests
    })
}

struct World {
    clients: Vec<Client>,
    place: Arc<Mutex<Place>>,
    start: Instant,
    end: Duration,
    broken: f64,
    random: Random,
}

impl World {
    async fn open(&mut self, rps: impl Fn(Duration) -> f64, running: impl Fn(Duration) -> usize) {
        let mut next = Duration::ZERO;
        while next < self.end {
            sleep_until(self.start + next).await;
            let client = self.clients[self.random.below(running(next))].clone();
            let call = self.call(client);
            tokio::spawn(call);
            next += self
                .random
                .exponential(Duration::from_secs_f64(1.0 / rps(next)));
        }
    }

    async fn closed(&mut self, users: usize, think: Duration) {
        for user in 0..users {
            let mut own = World {
                clients: vec![self.clients[user % self.clients.len()].clone()],
                place: Arc::clone(&self.place),
                random: self.random.fork(),
                ..*self
            };
            let mut wait = self.random.exponential(think);
            tokio::spawn(async move {
                while own.start.elapsed() + wait < own.end {
                    sleep(wait).await;
                    let client = own.clients[0].clone();
                    own.call(client).await;
                    wait = own.random.exponential(think);
                }
            });
        }
        sleep_until(self.start + self.end).await;
    }

    /// Makes one call, and writes down what became of it.
    fn call(&mut self, mut client: Client) -> impl Future<Output = ()> + Send + 'static {
        let broken = self.broken > 0.0 && self.random.happens(self.broken);
        let (place, start) = (Arc::clone(&self.place), self.start);
        async move {
            lock(&place).record.begin();
            let begun = start.elapsed();
            let succeeded = client.call(request(broken)).await.is_success();
            let took = start.elapsed() - begun;
            lock(&place).record.end(CallRecord {
                begun,
                took,
                succeeded,
            });
        }
    }
}

fn request(broken: bool) -> Request<Body> {
    let mut request = Request::new(Body::new());
    *request.uri_mut() = Uri::from_static(match broken {
        true => "http://server/broken",
        false => "http://server/",
    });
    request
}
