//! What a call allocates when it succeeds at once. The numbers are those of README and documentation.

mod support;

use allocation_counter::{AllocationInfo, measure};
use bytes::Bytes;
use http::{HeaderValue, Request, Response};
use http_body_util::Full;
use std::{
    convert::Infallible,
    future::{Future, Ready, ready},
    pin::pin,
    task::{Context, Poll, Waker},
};
use support::{Body, get, steady};
use tower::{Layer, Service};
use tower_retry_budget::{
    RetryBudget, RetryBudgetLayer, RetryPolicy, body::ReplayBody, policy::RetryPolicyBuilder,
};

/// Answers at once, and allocates nothing.
#[derive(Clone)]
struct Inner(u16);

impl Service<Request<ReplayBody<Body>>> for Inner {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<ReplayBody<Body>>) -> Self::Future {
        let mut response = Response::new(Full::default());
        *response.status_mut() = self.0.try_into().expect("a valid status");
        ready(Ok(response))
    }
}

fn bare(policy: RetryPolicyBuilder, status: u16) -> RetryBudget<Inner> {
    let policy = policy.build().expect("a valid policy");
    let layer = RetryBudgetLayer::new().policy(policy);
    let layer = layer.no_deadline_header().no_attempt_header();
    layer.layer(Inner(status))
}

/// Four headers with values of their own.
fn four_headers() -> Request<Body> {
    let mut request = get();
    for name in ["accept", "user-agent", "x-request-id", "x-tenant"] {
        let value = HeaderValue::from_str("a value of its own");
        let value = value.expect("a valid value");
        request.headers_mut().insert(name, value);
    }
    request
}

/// What one call allocates, once the budget has an account for its key.
fn allocations(
    mut service: RetryBudget<Inner>,
    request: impl Fn() -> Request<Body>,
) -> AllocationInfo {
    let mut call = |request| {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(Service::<Request<Body>>::poll_ready(&mut service, &mut cx).is_ready());
        let call = pin!(service.call(request));
        assert!(call.poll(&mut cx).is_ready());
    };
    call(request());
    let request = request();
    measure(|| call(request))
}

#[test]
fn a_call_that_is_only_watched_allocates_nothing() {
    let never = || RetryPolicy::never().to_builder();
    assert_eq!(allocations(bare(never(), 200), four_headers).count_total, 0);
    let body = || four_headers().map(|_| Full::new(Bytes::from_static(&[7; 1024])));
    assert_eq!(allocations(bare(never(), 200), body).count_total, 0);
    assert_eq!(allocations(bare(never(), 503), four_headers).count_total, 0);
}

#[test]
fn a_call_that_may_be_retried_allocates_four_times() {
    let counted = allocations(bare(steady().total_timeout(None), 200), four_headers);
    // What is known of the call; the headers, in one piece; and a map with an entry, for an extension that
    // tells layers inside.
    assert_eq!(counted.count_total, 4);
    assert!(counted.bytes_total < 1200, "{counted:?}");
    assert_eq!(counted.count_current, -(owned_by_the_request()));
}

#[test]
fn a_deadline_allocates_nothing_before_something_is_pending() {
    let limited = steady().total_timeout(support::SECOND);
    assert_eq!(allocations(bare(limited, 200), four_headers).count_total, 4);
}

#[test]
fn of_the_headers_that_are_sent_only_the_time_left_allocates() {
    let policy = steady().build().expect("a valid policy");
    let layer = RetryBudgetLayer::new().policy(policy);
    let counted = allocations(layer.layer(Inner(200)), four_headers);
    // The map of the headers may grow for them.
    assert!((5..=7).contains(&counted.count_total), "{counted:?}");
}

/// What a request frees when it is dropped.
fn owned_by_the_request() -> i64 {
    let request = four_headers();
    -measure(|| drop(request)).count_current
}
