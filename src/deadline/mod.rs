//! How long a call may take, who retries it, and how the next hop learns of both.
//!
//! ```
//! use std::time::Duration;
//! use tower_retry_budget::Deadline;
//!
//! // Whatever the policy says, this one call ends within 200 ms.
//! let mut request = http::Request::get("http://search/").body(()).unwrap();
//! request.extensions_mut().insert(Deadline::after(Duration::from_millis(200)));
//! ```
//!
//! # A chain of services
//!
//! Three layers of three attempts send 27 requests to a leaf that is down, unless they know of each
//! other. A client's [`RetryBudgetLayer`](crate::RetryBudgetLayer) tells the next hop; a
//! [`DeadlineLayer`](crate::DeadlineLayer), or a layer
//! [for handlers](crate::RetryBudgetLayer::for_handlers), reads it there. Every client's layer that a
//! handler calls then inherits both, without a line in the handler:
//!
//! ```
//! use bytes::Bytes;
//! use http::{Request, Response};
//! use http_body_util::Full;
//! use std::convert::Infallible;
//! use tower::{Layer, ServiceExt, service_fn};
//! use tower_retry_budget::{DeadlineLayer, RetryBudgetLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! // The next hop answers with what it was told.
//! let next = service_fn(|request: Request<_>| async move {
//!     let _: &tower_retry_budget::body::ReplayBody<Full<Bytes>> = request.body();
//!     let mut response = Response::new(Full::<Bytes>::default());
//!     *response.headers_mut() = request.headers().clone();
//!     Ok::<_, Infallible>(response)
//! });
//! let client = RetryBudgetLayer::default().layer(next);
//!
//! // The five lines of a service in the middle.
//! let handler = move |_: Request<Full<Bytes>>| {
//!     let request = Request::get("http://search/").body(Full::default()).unwrap();
//!     client.clone().oneshot(request)
//! };
//! let service = DeadlineLayer::new().layer(service_fn(handler));
//!
//! let request = Request::get("/")
//!     .header("x-deadline-remaining-ms", "300")
//!     .header("x-retry-attempt", "1;max=3");
//! let response = service.oneshot(request.body(Full::default()).unwrap()).await.unwrap();
//! // 5 % are kept back for the way of the answer.
//! let left: u64 = response.headers()["x-deadline-remaining-ms"].to_str().unwrap().parse().unwrap();
//! assert!(left <= 285);
//! // The caller retries, so nobody here does.
//! assert_eq!(response.headers()["x-retry-attempt"], "1;max=3");
//! # }
//! ```
//!
//! `cargo run --example chain` shows what that does in an outage.
//!
//! # The contract
//!
//! Times on the wire are always *remaining* time, never an instant: the clocks of two hosts differ.
//!
//! | header | says | grammar | set by | read by | absent |
//! |---|---|---|---|---|---|
//! | [`x-deadline-remaining-ms`](DEADLINE_REMAINING_MS), request | the time left for this attempt | digits: whole milliseconds, rounded down, never 0 | a client's layer on every attempt that has a limit, anew each time | the server | no deadline is known |
//! | [`x-retry-attempt`](RETRY_ATTEMPT), request | the sender retries, and this is which of its attempts | RFC 9651 integer item with `max`: `2;max=3` | a client's layer, on every attempt of a call that it may repeat after any failure; by one that skips, as it was inherited | the server | nobody above retries |
//! | [`x-retry-exhausted`](RETRY_EXHAUSTED), response | a call was given up, and why | RFC 9651 dictionary: `reason=max_attempts, attempts=3, elapsed-ms=1234` | a server's layer on a 5xx, if the request carried `x-retry-attempt` | the client's layer above | decide as for any response |
//!
//! [`DeadlineHeader`] adds `grpc-timeout` and `x-envoy-expected-rq-timeout-ms`; [`RetryHeaders`] sets the
//! names. What is malformed is as good as absent. Of several times the shortest counts; one over 10
//! minutes is cut down to that, and 0 means that it is over. A reason that forbids another attempt
//! above is one for which [`StopReason::forbids_retry_above`](crate::reason::StopReason::forbids_retry_above)
//! holds. The crate's repository has the contract as data, in `tests/vectors`, for other languages.
//!
//! # Who retries
//!
//! [`LayeredRetries`] says what a layer does under a caller that retries already: by default it makes one
//! attempt, so that a chain of any length sends as many requests to its leaf as the first layer that retries
//! makes attempts. A POST is not retried and so carries no `x-retry-attempt`: a GET that is made for
//! it is retried by the service that makes it.
//!
//! # What a task inherits
//!
//! What a request brought belongs to the task that serves it, while its handler runs:
//!
//! | where a call is made | inherits |
//! |---|---|
//! | in the handler, and in whatever it awaits: `join!`, `select!`, `FuturesUnordered` | yes |
//! | in `tokio::spawn`, `JoinSet::spawn` | wrap the future in [`Deadline::scope`] |
//! | behind a `Buffer`, or another worker that calls from a task of its own | put [`Deadline::capture_layer`] outside of it |
//! | in `spawn_blocking`, or in a thread | no. Hand a [`Deadline`] over, as a request extension |
//! | in the stream of a response body, after the head | put a [`CoverBodyLayer`] inside of the `DeadlineLayer`. It also cuts the body at the deadline |
//! | in work that no request asked for | [`Deadline::limit`] sets a deadline |
//!
//! A handler's own waiting is cut too: at the deadline its future is dropped. Spawned tasks
//! go on. A handler sees what it inherited as [`Deadline::current`], and with who retries as
//! [`Inherited`], an extension of the request and with the feature `axum` an extractor.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use std::time::Duration;
//! use tower_retry_budget::Deadline;
//!
//! let work = async {
//!     assert!(Deadline::current().is_some());
//!     let (bare, scoped) = tokio::join!(
//!         tokio::spawn(async { Deadline::current() }),
//!         tokio::spawn(Deadline::scope(async { Deadline::current() })),
//!     );
//!     assert_eq!(bare.unwrap(), None);
//!     assert_eq!(scoped.unwrap(), Deadline::current());
//! };
//! Deadline::after(Duration::from_secs(1)).limit(work).await;
//! # }
//! ```
//!
//! # Beside others
//!
//! [`mesh`] is a page on Envoy, gRPC and service meshes: which header meets which, whose retries to
//! switch off, in which order to roll it out, what outlier ejection makes of a `503`, and whom to trust.

mod attempt;
mod codec;
mod cover;
mod inbound;
mod layered;
mod marker;
pub mod mesh;
mod names;
mod scope;

pub use self::{
    attempt::{RETRY_ATTEMPT, RetryAttempt},
    codec::{DEADLINE_REMAINING_MS, DeadlineHeader},
    cover::{CoverBody, CoverBodyLayer, CoverFuture, CoveredBody},
    inbound::Inherited,
    layered::LayeredRetries,
    marker::RETRY_EXHAUSTED,
    names::RetryHeaders,
    scope::{Capture, CaptureLayer, Scoped},
};
pub(crate) use self::{
    inbound::{Inbound, Received},
    layered::RetriedAbove,
    marker::Marker,
    names::Ownership,
    scope::Scope,
};

use crate::clock;
use std::time::{Duration, Instant};

/// A call with less time left than this is not sent: the header that says how much is left counts in
/// whole milliseconds.
pub(crate) const LEAST_REMAINING: Duration = Duration::from_millis(1);

/// The instant after which nothing is sent or waited for.
///
/// As a request extension it can only shorten what the policy allows. A deadline too far away to be
/// an instant is no deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Creates a deadline `left` from now.
    pub fn after(left: Duration) -> Self {
        Self(clock::now().checked_add(left))
    }

    /// Creates a deadline at an instant of the clock that tokio's timers use.
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// The time left; zero when the deadline has passed.
    pub fn remaining(&self) -> Duration {
        match self.0 {
            Some(at) => at.saturating_duration_since(clock::now()),
            None => Duration::MAX,
        }
    }

    /// Whether the deadline has passed.
    pub fn is_expired(&self) -> bool {
        self.remaining().is_zero()
    }

    pub(crate) const fn instant(self) -> Option<Instant> {
        self.0
    }
}
