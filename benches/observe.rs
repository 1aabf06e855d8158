//! What it costs to be watched: the same call with nobody listening, with a recorder of metrics, with a
//! subscriber that takes every span and event, and with both.
//!
//! ```text
//! cargo bench --all-features --bench observe
//! valgrind --tool=callgrind <the binary> nobody 10000      # counts the instructions of one of them
//! ```
//!
//! Prints the nanoseconds of a call that succeeds at once, and the ratio to the one that nobody watches:
//! the best of 15 rounds, in turn. The making of the request is part of it.

#![allow(missing_docs, reason = "not a library")]

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use metrics_exporter_prometheus::PrometheusBuilder;
use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use tokio::time::Instant;
use tower::{Layer, Service};
use tower_retry_budget::{
    RetryBudget, RetryBudgetLayer, body::ReplayBody, observe::metrics::Metrics,
};
use tracing_subscriber::{Registry, layer::SubscriberExt};

const CASES: [&str; 4] = ["nobody", "metrics", "tracing", "both"];
const ROUNDS: usize = 15;
const CALLS: u32 = 20_000;

type Body = Full<Bytes>;

/// Answers at once.
#[derive(Clone)]
struct Inner;

impl Service<Request<ReplayBody<Body>>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<ReplayBody<Body>>) -> Self::Future {
        drop(request);
        ready(Ok(Response::new(Body::default())))
    }
}

fn request() -> Request<Body> {
    Request::get("http://search:8080/find?q=1")
        .header("accept", "application/json")
        .header("user-agent", "bench")
        .header("x-request-id", "4711")
        .header("x-tenant", "shop")
        .body(Body::default())
        .expect("a valid request")
}

fn call(service: &mut RetryBudget<Inner>, times: u32) {
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..times {
        _ = Service::<Request<Body>>::poll_ready(service, &mut cx);
        let call = pin!(service.call(request()));
        assert!(black_box(call.poll(&mut cx)).is_ready());
    }
}

/// Makes calls that are watched in this way.
fn watched(case: &str, run: impl FnOnce(&mut RetryBudget<Inner>)) {
    let layer = RetryBudgetLayer::new();
    let mut service = match case {
        "metrics" | "both" => layer.observe(Metrics::new()).layer(Inner),
        _ => layer.layer(Inner),
    };
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || match case {
        "tracing" | "both" => {
            let subscriber = Registry::default().with(tracing_subscriber::layer::Identity::new());
            tracing::subscriber::with_default(subscriber, || run(&mut service));
        }
        _ => run(&mut service),
    });
}

fn timed(case: &str) -> Duration {
    let mut took = Duration::ZERO;
    watched(case, |service| {
        call(service, 100);
        let start = Instant::now();
        call(service, CALLS);
        took = start.elapsed();
    });
    took
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [case, times] = arguments.as_slice() {
        let times = times.parse().expect("a number of calls");
        return watched(case, |service| call(service, times));
    }
    let mut best = [Duration::MAX; CASES.len()];
    for _ in 0..ROUNDS {
        for (best, case) in best.iter_mut().zip(CASES) {
            *best = timed(case).min(*best);
        }
    }
    for (took, case) in best.iter().zip(CASES) {
        let each = took.as_nanos() / u128::from(CALLS);
        let ratio = took.as_secs_f64() / best[0].as_secs_f64();
        println!("{case:8} {each:6} ns per call, {ratio:.2} of nobody's");
    }
}
