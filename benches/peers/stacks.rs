//! Ours, and what is used in its place.

use crate::{
    floor::Floor,
    inner::Inner,
    measure::{Case, Group},
    request::{self, Streamed},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Full};
use std::{
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};
use tower::{
    Service, ServiceBuilder, ServiceExt,
    layer::Layer,
    retry::{
        Policy, RetryLayer,
        budget::{Budget, TpsBudget},
    },
    timeout::TimeoutLayer,
};
use tower_http::set_header::SetRequestHeaderLayer;
use tower_resilience_retry::{RetryBudgetBuilder, RetryLayer as ResilienceLayer};
use tower_retry_budget::{
    RetryBudget, RetryBudgetLayer, RetryPolicy,
    budget::TokenBudget,
    policy::{Backoff, RetryPolicyBuilder},
};

/// Not a peer: see [`crate::floor`].
const FLOOR: &str = "the floor";
const RESILIENCE: &str = "tower-resilience";

const ATTEMPTS: u32 = 3;
const TOTAL: Duration = Duration::from_secs(30);
const ATTEMPT: Duration = Duration::from_secs(5);

/// Retries a second that no case uses up.
const AMPLE: u32 = 50_000_000;

pub fn groups() -> Vec<Group> {
    let mut groups = vec![
        group("owned", request::owned, Inner::ready),
        group("static", request::fixed, Inner::ready),
        group("owned, pending", request::owned, Inner::pending),
        group("1 KiB", request::kibibyte, Inner::ready),
        streamed(),
    ];
    let mut retries = group("one retry", request::owned, Inner::failing_first);
    // The floor retries nothing. Theirs sleeps before each retry, if only until the next tick of a timer that nobody turns here.
    retries
        .cases
        .retain(|case| case.name != RESILIENCE && case.name != FLOOR);
    // The bare service is given the request twice.
    let mut inner = Inner::failing_first();
    let twice = move |(first, second)| {
        let (first, second) = (call(&mut inner, first), call(&mut inner, second));
        async move { (first.await, second.await) }
    };
    let requests = || (request::owned(), request::owned());
    retries.cases[0] = Case::new("bare, twice", requests, twice);
    groups.push(retries);
    groups
}

fn group<B>(name: &'static str, request: fn() -> Request<B>, inner: fn() -> Inner) -> Group
where
    B: Body<Data = Bytes, Error = std::convert::Infallible> + Clone + Send + 'static,
{
    let cases = vec![
        case("bare", request, inner()),
        case("ours", request, ours(plain(), inner())),
        case("ours, all on", request, all_on(inner())),
        case(
            "ours, Never",
            request,
            ours(RetryPolicy::never().to_builder(), inner()),
        ),
        case(FLOOR, request, Floor::new(inner())),
        case("tower::retry", request, retry().layer(inner())),
        case("full stack", request, full_stack(inner())),
        case(RESILIENCE, request, resilience(inner())),
    ];
    Group { name, cases }
}

/// A body that comes in pieces cannot be cloned, so theirs is collected first.
fn streamed() -> Group {
    let request = request::streamed;
    let cases = vec![
        case("bare", request, Inner::ready()),
        case("ours", request, ours(plain(), Inner::ready())),
        case("ours, all on", request, all_on(Inner::ready())),
        case(
            "ours, Never",
            request,
            ours(RetryPolicy::never().to_builder(), Inner::ready()),
        ),
        collected("tower::retry", retry().layer(Inner::ready())),
        collected("full stack", full_stack(Inner::ready())),
        collected(RESILIENCE, resilience(Inner::ready())),
    ];
    let name = "streamed 32 KiB";
    Group { name, cases }
}

pub fn case<S, B>(name: &'static str, request: fn() -> Request<B>, mut service: S) -> Case
where
    S: Service<Request<B>> + 'static,
    B: 'static,
{
    Case::new(name, request, move |request| call(&mut service, request))
}

fn call<S: Service<Request<B>>, B>(service: &mut S, request: Request<B>) -> S::Future {
    let ready = service.poll_ready(&mut Context::from_waker(Waker::noop()));
    assert!(ready.is_ready(), "always ready");
    service.call(request)
}

fn collected<S>(name: &'static str, service: S) -> Case
where
    S: Service<Request<Full<Bytes>>> + Clone + 'static,
{
    Case::new(
        name,
        request::streamed,
        move |request: Request<Streamed>| {
            let service = service.clone();
            async move {
                let (head, body) = request.into_parts();
                let body = body
                    .collect()
                    .await
                    .map(http_body_util::Collected::to_bytes);
                let body = Full::from(body.unwrap_or_default());
                service.oneshot(Request::from_parts(head, body)).await
            }
        },
    )
}

pub fn plain() -> RetryPolicyBuilder {
    RetryPolicy::builder()
        .max_attempts(ATTEMPTS)
        .total_timeout(None)
        .backoff(Backoff::none())
        .throttled_backoff(Backoff::none())
}

/// Ours, without a time limit and without headers.
pub fn ours(policy: RetryPolicyBuilder, inner: Inner) -> RetryBudget<Inner> {
    let layer = layer(policy);
    layer.no_deadline_header().no_attempt_header().layer(inner)
}

/// Ours, with a deadline for the call, a limit for the attempt, and both headers.
fn all_on(inner: Inner) -> RetryBudget<Inner> {
    let policy = plain().total_timeout(TOTAL).attempt_timeout(ATTEMPT);
    layer(policy).layer(inner)
}

pub fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    let budget = TokenBudget::builder()
        .cap(AMPLE.into())
        .initial(AMPLE.into())
        .build();
    RetryBudgetLayer::new()
        .policy(policy.build().expect("a valid policy"))
        .budget(budget.expect("a valid budget"))
}

/// The policy that tower's documentation has, for HTTP.
#[derive(Clone)]
pub struct ByHand {
    left: u32,
    budget: Arc<TpsBudget>,
}

impl<B: Clone, R, E> Policy<Request<B>, Response<R>, E> for ByHand {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<B>,
        result: &mut Result<Response<R>, E>,
    ) -> Option<Ready<()>> {
        let failed = match result {
            Ok(response) => response.status().is_server_error(),
            Err(_) => true,
        };
        if !failed {
            self.budget.deposit();
            return None;
        }
        if self.left == 0 || !self.budget.withdraw() {
            return None;
        }
        self.left -= 1;
        Some(ready(()))
    }

    fn clone_request(&mut self, request: &Request<B>) -> Option<Request<B>> {
        Some(request.clone())
    }
}

pub fn retry() -> RetryLayer<ByHand> {
    let budget = TpsBudget::new(Duration::from_secs(10), AMPLE, 0.2);
    RetryLayer::new(ByHand {
        left: ATTEMPTS - 1,
        budget: Arc::new(budget),
    })
}

/// What one puts together for the same: limits for the call and for the attempt, a budget, and two headers.
fn full_stack<B>(
    inner: Inner,
) -> impl Service<Request<B>, Response = Response<Full<Bytes>>, Future: 'static> + Clone + 'static
where
    B: Body + Clone + 'static,
{
    let left = HeaderName::from_static("x-deadline-remaining-ms");
    let attempt = HeaderName::from_static("x-retry-attempt");
    let millis = |_: &Request<B>| {
        let millis = u64::try_from(ATTEMPT.as_millis()).unwrap_or(u64::MAX);
        Some(HeaderValue::from(millis))
    };
    ServiceBuilder::new()
        .layer(TimeoutLayer::new(TOTAL))
        .layer(retry())
        .layer(TimeoutLayer::new(ATTEMPT))
        .layer(SetRequestHeaderLayer::overriding(left, millis))
        .layer(SetRequestHeaderLayer::overriding(
            attempt,
            HeaderValue::from_static("1;max=3"),
        ))
        .service(inner)
}

fn resilience<B>(
    inner: Inner,
) -> impl Service<Request<B>, Response = Response<Full<Bytes>>, Future: 'static> + Clone + 'static
where
    B: Body + Clone + Send + 'static,
{
    let budget = RetryBudgetBuilder::new()
        .token_bucket()
        .tokens_per_second(AMPLE.into())
        .max_tokens(AMPLE as usize)
        .build();
    let attempts = usize::try_from(ATTEMPTS).unwrap_or(usize::MAX);
    ResilienceLayer::builder()
        .max_attempts(attempts)
        .fixed_backoff(Duration::ZERO)
        .retry_on_response(|response: &Response<Full<Bytes>>| response.status().is_server_error())
        .budget(budget.expect("a valid budget"))
        .build()
        .layer(inner)
}
