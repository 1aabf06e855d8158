//! A tower layer that retries HTTP requests within a budget, a deadline and the server's own
//! `Retry-After`.
//!
//! A service calls a dependency. The dependency blips, and one retry saves the request. The
//! dependency goes down, and the same retries keep it down: three layers of three attempts turn one
//! click into 27 requests, each of which outlives the caller who asked. [`RetryBudgetLayer`] is the
//! one `.layer()` that gets this right:
//!
//! - it retries what is safe and worth retrying, and never earlier than the server asked;
//! - it keeps retries inside a [budget], one for each dependency;
//! - it works towards one [deadline] for the whole call, and tells the server how much of it is left and
//!   who retries, so that [a chain of services](deadline#a-chain-of-services) does not multiply attempts;
//! - when it gives up, it answers with a `503` that says how often it tried, how long that took, and
//!   [why it stopped](#exhausted).
//!
//! # Quick start
//!
//! Around a client. For reqwest there is [a module of its own](crate::reqwest).
//!
//! ```
//! use bytes::Bytes;
//! use http_body_util::Full;
//! use hyper_util::{client::legacy::Client, rt::TokioExecutor};
//! use tower::ServiceBuilder;
//! use tower_retry_budget::{RetryBudgetLayer, body::ReplayBody};
//!
//! # fn client() -> impl tower::Service<http::Request<Full<Bytes>>> {
//! let client = Client::builder(TokioExecutor::new()).build_http::<ReplayBody<Full<Bytes>>>();
//! let client = ServiceBuilder::new()
//!     .layer(RetryBudgetLayer::default())
//!     .service(client);
//! # client
//! # }
//! ```
//!
//! Around a server's handlers:
//!
//! ```
//! use axum::{Router, routing::get};
//! use tower_retry_budget::RetryBudgetLayer;
//!
//! # async fn handler() {}
//! let app: Router = Router::new()
//!     .route("/", get(handler))
//!     .layer(RetryBudgetLayer::for_handlers());
//! ```
//!
//! It holds the handlers to their callers' [deadlines](deadline) as well. A [`DeadlineLayer`] does only that.
//!
//! # How it decides
//!
//! A *call* has one or more *attempts*; a *retry* is any attempt after the first. What may be
//! repeated is fixed before the first attempt:
//!
//! | the request | is retried |
//! |---|---|
//! | GET, HEAD, OPTIONS, TRACE, PUT, DELETE, QUERY, or any with an `Idempotency-Key` | after any failure |
//! | any other | only on proof that nothing was processed: the connection was refused or never established, or HTTP/2 refused the stream |
//! | CONNECT, upgrades, and all under a policy of one attempt | never |
//! | any, made for a caller that retries it itself ([`LayeredRetries`](deadline::LayeredRetries)) | never |
//!
//! What proves that is a failure of the one request that an attempt is. A layer inside that follows
//! redirects makes it several: see [`no_proof`](policy::RetryPolicyBuilder::no_proof), and
//! [`no_redirects`](policy::RetryPolicyBuilder::no_redirects) for reqwest, which follows them by itself.
//!
//! A request's own [`Idempotent`](policy::Idempotent) overrides the table both ways. A body is kept
//! up to the replay limit; a longer one streams on, and its call is not retried once a byte of it
//! was read, unless a [`BodyFactory`](body::BodyFactory) makes it again.
//!
//! After each attempt, cheapest reason first:
//!
//! 1. Is the outcome a failure at all? 408, 425, 429, 500, 502, 503, 504, a time-out, a connection that
//!    broke. Anything else is returned as it is, and so is a 5xx of a server that
//!    [gave up](deadline::RETRY_EXHAUSTED) for a reason that asking again would not change.
//! 2. Are there attempts left? ([`max_attempts`](reason::StopReason::MaxAttempts))
//! 3. Does the wait that the server asked for fit the policy and the deadline?
//!    ([`retry_after_too_long`](reason::StopReason::RetryAfterTooLong))
//! 4. Do the wait and an attempt after it fit what is left?
//!    ([`deadline_too_close`](reason::StopReason::DeadlineTooClose))
//! 5. Is there a place to wait in? ([`overloaded`](reason::StopReason::Overloaded))
//! 6. Does the budget grant the retry? ([`budget`](reason::StopReason::Budget))
//!
//! The wait is the longer of the policy's back-off and the server's hint, and a hint is spread by up
//! to a fifth upwards, so that not everybody comes back at once. During the wait nothing of the inner
//! service is held: no permit, no connection, no response. Each attempt starts from the caller's own
//! head, so what a layer inside adds, such as a signature or a date, is made anew.
//!
//! # Where to put it
//!
//! Layers that belong to one attempt (authorisation, signing, a connection pool) go inside; those that
//! belong to the call go outside. A concurrency limit inside is not held while a call waits. Readiness
//! is the inner service's own and has no deadline: shed load outside. Retries of the client inside
//! multiply with those of the layer: switch reqwest's off, and know that hyper-util silently repeats a
//! request that never started on a reused connection (`retry_canceled_requests`).
//!
//! # Exhausted
//!
//! The layer's `503` is `application/problem+json` (RFC 9457). Its `reason` is one of
//! [`StopReason`](reason::StopReason); the same details are in the response's extensions as
//! [`Exhausted`]. It carries a `Retry-After`, unless repeating the request is not safe.
//! [`OnExhausted`] sets the alternatives: the last outcome itself, or no details.
//! The outcome of a call that was not retryable is never touched; only a limit cuts such a call.
//!
//! # Operating it
//!
//! Whether a service should retry, and how much, is best found out [without retrying](control#gates) first.
//! Later a [`RetryControl`] switches retries off while calls go by, and everything else that is no code can come
//! from a [configuration](config) that is reloaded.
//!
//! # Cancel safety
//!
//! A call that is dropped, in whatever state, sends nothing more, gives a retry that was not sent back to
//! the budget, frees the request body, and leaves no task, timer or connection behind.
//!
//! # Runtime
//!
//! Tokio with its time driver enabled. The crate spawns no tasks, but for the one of a
//! [`RedisBudget`](budget::RedisBudget).
//!
//! # What it costs
//!
//! What the layer adds to a call that succeeds at once, beside what others add to the same call, in runs of
//! `cargo bench --bench peers`:
//!
//! | | time, of theirs | allocations | theirs |
//! |---|---|---|---|
//! | `RetryPolicy::never()`, beside `tower::retry` with a `TpsBudget` | 0.6 to 0.8 | 0 | 6 |
//! | retries, without time limit and headers, beside the same | 2.0 to 3.3 | 4 | 6 |
//! | the same with 16 headers | 0.5 to 0.8 | 4 | 30 |
//! | the same with 64 headers | 0.3 to 0.4 | 4 | 126 |
//! | everything on, beside `Timeout`, `tower::retry`, `Timeout` and two `SetRequestHeader` | 1.3 to 1.8 | 6 | 8 |
//! | a body of 32 KiB that streams, beside one that is collected first | 1.2 to 1.3 | 8 | 10 |
//! | a deposit of `TokenBudget`, beside one of `TpsBudget`, on one thread | 0.3 to 0.5 | 0 | 0 |
//! | the same on two threads at once | 0.2 to 0.3 | 0 | 0 |
//!
//! Less is better. In a small call the layer costs more than a loop around a cloned request: it keeps an account for
//! each dependency, reads the clock twice and marks the request for layers inside. That alone, without deciding
//! anything (`the floor` in the same runs), is 1.1 to 1.5 of `tower::retry`. One retry costs four to six times as much
//! as theirs: it waits in a bounded room, is withdrawn, observed and settled, and leaves a history.
//!
//! Over loopback, counted in instructions of whole requests, a hyper-util client with the layer and its defaults takes
//! 1.3 of what it takes without, a reqwest client 1.4 (with reqwest-retry 1.1), and an axum server that answers with a
//! word, with the layer around its handlers, 1.5. The bench also times them in turns, with each bare client and server
//! twice, so that the noise can be seen.
//!
//! What this does not show: the time of a request over a network, next to which all of it is small; calls with
//! a subscriber or an observer (`cargo bench --all-features --bench observe`); and other machines, where the ratios differ
//! by some tenths. `benches/instructions/run` counts the instructions of the same paths, at two commits.
//!
//! # Features
//!
//! None is on by default. A feature changes nothing else than it says.
//!
//! | feature | what it adds |
//! |---|---|
//! | `axum` | [`Inherited`](deadline::Inherited) as an extractor |
//! | `reqwest` | [`reqwest::Client`](::reqwest::Client) as a service, request builders that go through the layer, and reqwest's errors |
//! | `redis` | [`RedisBudget`](budget::RedisBudget): one budget for a fleet of processes |
//! | `http2` | h2's errors: a refused stream or a GOAWAY proves that nothing was processed |
//! | `metrics` | [what calls do](observe), over the `metrics` facade |
//! | `serde` | the [configuration as data](config); [`RetryState`] and [`DeliveryRecord`] can be serialised |
//! | `full` | all of them |

#![cfg_attr(docsrs, feature(doc_cfg))]
// What a feature brings is linked to, and not there without it.
#![cfg_attr(
    not(all(feature = "redis", feature = "reqwest", feature = "serde")),
    allow(rustdoc::broken_intra_doc_links)
)]

pub mod body;
pub mod budget;
mod call;
#[cfg(doc)]
pub mod choosing_numbers;
mod chosen;
mod client;
mod clock;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub mod config;
mod config_error;
pub mod control;
pub mod deadline;
mod deadline_layer;
mod decide;
mod drain;
mod exhausted;
pub mod future;
mod hold_off;
mod layer;
pub mod observe;
mod pass;
pub mod policy;
pub mod reason;
mod retry_state;
mod service;
mod shared;
mod template;
mod timer;
mod waiting;

#[cfg(feature = "reqwest")]
#[cfg_attr(docsrs, doc(cfg(feature = "reqwest")))]
pub use self::client::reqwest;
pub use self::{
    config_error::ConfigError,
    control::RetryControl,
    deadline::Deadline,
    deadline_layer::{DeadlineFuture, DeadlineLayer, DeadlineService},
    exhausted::{AttemptEntry, AttemptRecord, Delivery, DeliveryRecord, Exhausted, RetryInfo},
    hold_off::HoldOff,
    layer::RetryBudgetLayer,
    policy::{OnExhausted, RetryPolicy},
    retry_state::{Persist, RetryState},
    service::RetryBudget,
};

/// Compiles the code in the README.
#[cfg(all(doctest, feature = "reqwest"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the code in the guide for those who come from elsewhere.
#[cfg(all(doctest, feature = "reqwest"))]
#[doc = include_str!("../MIGRATING.md")]
struct Migrating;
