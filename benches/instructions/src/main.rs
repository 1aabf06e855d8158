//! The paths whose instructions are counted: `instructions PATH CALLS` takes one of them so often.
//! Without arguments it names them. See `run` beside it.
//!
//! Only what happens inside of `counted` counts: a call from its request to its answer, with the
//! service inside. The path `bare` is that service alone.

#![forbid(unsafe_code)]

#[path = "../../peers/inner.rs"]
mod inner;
#[path = "../../peers/request.rs"]
mod request;

use http::Request;
use inner::Inner;
use std::{
    future::Future,
    hint::black_box,
    pin::pin,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};
use tower_layer::Layer;
use tower_retry_budget::{
    RetryBudget, RetryBudgetLayer, RetryPolicy,
    budget::{Budget, Key, TokenBudget},
    policy::{Backoff, RetryPolicyBuilder},
};
use tower_service::Service;

const PATHS: [(&str, fn(u32)); 12] = [
    ("bare", |calls| take(calls, Inner::ready(), request::owned)),
    ("bare_streamed", |calls| {
        take(calls, Inner::ready(), request::streamed)
    }),
    ("success", |calls| {
        take(calls, ours(plain(), Inner::ready()), request::owned)
    }),
    ("success_static", |calls| {
        take(calls, ours(plain(), Inner::ready()), request::fixed)
    }),
    ("success_1_kib", |calls| {
        take(calls, ours(plain(), Inner::ready()), request::kibibyte)
    }),
    ("success_streamed", |calls| {
        take(calls, ours(plain(), Inner::ready()), request::streamed)
    }),
    ("all_on_pending", |calls| {
        take(calls, all_on(Inner::pending()), request::owned)
    }),
    ("never", |calls| {
        take(calls, ours(never(), Inner::ready()), request::owned)
    }),
    ("one_retry", |calls| {
        take(calls, ours(plain(), Inner::failing_first()), request::owned)
    }),
    ("defaults", |calls| {
        take(
            calls,
            RetryBudgetLayer::new().layer(Inner::ready()),
            request::owned,
        )
    }),
    ("deposit", |calls| deposits(calls, Key::no_authority())),
    ("deposit_keyed", |calls| {
        deposits(calls, Key::from_uri(request::owned().uri()))
    }),
];

/// More than any path needs that waits for nothing.
const POLLS: usize = 100;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [path, calls] = arguments.as_slice() else {
        PATHS.iter().for_each(|(name, _)| println!("{name}"));
        return;
    };
    let calls = calls.parse().expect("a number of calls");
    let path = PATHS.iter().find(|(name, _)| name == path);
    let (_, run) = path.expect("a path of that name");
    run(calls);
}

fn take<S, B>(calls: u32, mut service: S, request: fn() -> Request<B>)
where
    S: Service<Request<B>>,
{
    for _ in 0..calls {
        let request = request();
        counted(|| finish(&mut service, request));
    }
}

/// What is counted. The script knows it by its name.
#[inline(never)]
fn counted<T>(work: impl FnOnce() -> T) {
    black_box(work());
}

fn finish<S: Service<Request<B>>, B>(
    service: &mut S,
    request: Request<B>,
) -> Result<S::Response, S::Error> {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(service.poll_ready(&mut cx).is_ready(), "always ready");
    let mut future = pin!(service.call(request));
    for _ in 0..POLLS {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut cx) {
            return answer;
        }
    }
    panic!("still pending: nobody turns its timer");
}

fn plain() -> RetryPolicyBuilder {
    RetryPolicy::builder()
        .total_timeout(None)
        .backoff(Backoff::none())
        .throttled_backoff(Backoff::none())
}

fn never() -> RetryPolicyBuilder {
    RetryPolicy::never().to_builder()
}

fn ours(policy: RetryPolicyBuilder, inner: Inner) -> RetryBudget<Inner> {
    let layer = layer(policy);
    layer.no_deadline_header().no_attempt_header().layer(inner)
}

fn all_on(inner: Inner) -> RetryBudget<Inner> {
    let policy = plain()
        .total_timeout(Duration::from_secs(30))
        .attempt_timeout(Duration::from_secs(5));
    layer(policy).layer(inner)
}

fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    let budget = TokenBudget::builder().cap(1_000_000).initial(1_000_000);
    RetryBudgetLayer::new()
        .policy(policy.build().expect("a valid policy"))
        .budget(budget.build().expect("a valid budget"))
}

fn deposits(calls: u32, key: Key) {
    let budget = TokenBudget::default();
    for _ in 0..calls {
        let now = Instant::now();
        counted(|| budget.deposit(black_box(&key), false, black_box(now)));
    }
}
