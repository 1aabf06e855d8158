//! Living with a service mesh, Envoy and gRPC. Nothing but text.
//!
//! # Which headers meet which
//!
//! | | sends | reads | to switch on |
//! |---|---|---|---|
//! | this crate | [`x-deadline-remaining-ms`](super::DEADLINE_REMAINING_MS), [`x-retry-attempt`](super::RETRY_ATTEMPT) | the same, in a [`DeadlineLayer`](crate::DeadlineLayer) | the client's layer sends by default |
//! | Envoy, to a server | `x-envoy-expected-rq-timeout-ms`: its time-out for the route or for the try | | on by default for internal requests; read it with [`DeadlineHeader::envoy`](super::DeadlineHeader::envoy) |
//! | Envoy, from a client | | `x-envoy-expected-rq-timeout-ms` | `respect_expected_rq_timeout` in its router filter; write it with `DeadlineHeader::envoy` |
//! | Envoy, retrying | `x-envoy-attempt-count`: 1, 2, 3 | | `include_request_attempt_count`; read it as [below](#one-retrier-per-hop) |
//! | gRPC clients | `grpc-timeout` | | whenever the call has a deadline; read it with [`DeadlineHeader::grpc_timeout`](super::DeadlineHeader::grpc_timeout) |
//! | gRPC servers | | `grpc-timeout` | by themselves; write it with `DeadlineHeader::grpc_timeout` |
//! | Envoy, for gRPC | | `grpc-timeout` | `max_stream_duration` with `grpc_timeout_header_max` in the route |
//!
//! Several headers are written and read at once; of those that are read the shortest time counts:
//!
//! ```
//! use tower_retry_budget::{
//!     DeadlineLayer, RetryBudgetLayer,
//!     deadline::{DeadlineHeader, RetryHeaders},
//! };
//!
//! let headers = RetryHeaders::default().deadlines([
//!     DeadlineHeader::default(),
//!     DeadlineHeader::envoy(),
//!     DeadlineHeader::grpc_timeout(),
//! ]);
//! let server = DeadlineLayer::new().headers(headers.clone());
//! let client = RetryBudgetLayer::new().headers(headers);
//! # let _ = (server, client);
//! ```
//!
//! Neither Envoy nor gRPC says by these headers that it retries. So they shorten what is done for a
//! call, and never make a layer skip its own retries. `grpc-previous-rpc-attempts` is not read: it
//! counts the attempts before this one. The failure of a gRPC call is in its trailers, where this crate
//! does not look: leave those retries to the gRPC client.
//!
//! A proxy in between hands `x-deadline-remaining-ms` on as it came. What it spends on queues and on
//! retries of its own is not taken off; what it says of its own time-out, in its own header, is. That
//! is a reason to read both.
//!
//! # One retrier per hop
//!
//! Between two services there are up to three who may retry: the client's library, this layer, and the
//! proxy. Three attempts of each are 27 requests on one hop, before any chain. Keep one of them, best
//! the one that knows the request's method, its budget and its deadline.
//!
//! | | retries by itself | switch it off |
//! |---|---|---|
//! | Envoy | with a retry policy on the route or the virtual host, or when asked by `x-envoy-retry-on` | leave out `retry_policy`, and do not send that header |
//! | Istio | twice, on connect failures, refused streams and some statuses | `retries: { attempts: 0 }` in the `VirtualService`, or in the mesh's `defaultHttpRetryPolicy` |
//! | Linkerd | only routes that say so | leave `isRetryable` and the `retry.linkerd.io` annotations out |
//! | gRPC | with a `retryPolicy` in the service config; transparently when a request never left | leave out `retryPolicy`; the transparent ones do no harm |
//! | reqwest | up to twice, what was refused unprocessed | `ClientBuilder::retry(reqwest::retry::never())` |
//! | hyper-util | what never started on a reused connection | `retry_canceled_requests(false)` |
//!
//! Where the proxy is to be the one, set [`RetryPolicy::never`](crate::RetryPolicy::never) in the
//! clients behind it. If Envoy numbers its attempts, a server can read that, and the clients in it
//! then skip their retries for those requests that are retries already:
//!
//! ```
//! use http::{HeaderName, HeaderValue};
//! use tower_retry_budget::{
//!     DeadlineLayer,
//!     deadline::{DeadlineHeader, RetryAttempt, RetryHeaders},
//! };
//!
//! let from_envoy = RetryHeaders::default()
//!     .deadlines([DeadlineHeader::envoy()])
//!     .attempt(HeaderName::from_static("x-envoy-attempt-count"));
//! let server = DeadlineLayer::new().headers(from_envoy);
//! # let _ = server;
//!
//! let second = RetryAttempt::parse(&HeaderValue::from_static("2")).unwrap();
//! assert!(second.is_retry());
//! ```
//!
//! # In which order to roll it out
//!
//! The leaf first, the edge last, and in each service the server's layer before the client's.
//!
//! A [`DeadlineLayer`](crate::DeadlineLayer) does nothing as long as no caller sends the headers, so it
//! can be added anywhere at any time. A client's layer adds attempts. Added from the leaf upwards, each
//! finds that everything below knows the headers already, and makes no more than its own
//! attempts of it. Added at the edge first, its attempts multiply with those of every service that does
//! not know yet who retries.
//!
//! A service in the middle that knows nothing of this breaks the chain in two: below it begins a new
//! time, and a new layer that retries. Nothing else breaks.
//!
//! # Outlier ejection
//!
//! Meshes take a replica out of the load balancing when it fails too often. A service whose
//! dependency is down fails on every replica alike, and none of them is ill: ejecting them takes away
//! capacity, mends nothing, and slows the recovery.
//!
//! - The `503` of a client's layer is made in the process of the caller. A proxy sees it only if the
//!   handler hands it on as its own answer. Better map it: `502` says that a dependency failed, `504`
//!   that it took too long, and a `503` of your own keeps meaning that *this* replica has too
//!   much to do. It also keeps callers from backing off as if this service had asked for it.
//!   `x-retry-exhausted` is added to whichever `5xx` you choose.
//! - Envoy counts every `5xx` as a failure of the replica (`consecutive_5xx`), and `502`, `503` and
//!   `504` once more (`consecutive_gateway_failure`), so mapping alone does not save it. Let the
//!   ejector go by what only the replica can be blamed for: set `split_external_local_origin_errors`,
//!   eject by `consecutive_local_origin_failure`, and set the other two to be not enforced. The
//!   success rate is safe: it compares replicas with each other.
//! - The `503` of a [`DeadlineLayer`](crate::DeadlineLayer) or a layer
//!   [for handlers](crate::RetryBudgetLayer::for_handlers) with the reason `deadline_reached` says
//!   that the *caller's* time was over. To an ejector it looks like any other. Callers with too little
//!   time can have well replicas ejected, as they can by time-outs at the proxy.
//! - Keep `max_ejection_percent` low.
//!
//! ```
//! use axum::{http::StatusCode, response::{IntoResponse, Response}};
//! use tower_retry_budget::{Exhausted, reason::StopReason};
//!
//! /// What a handler says of a dependency that did not answer well.
//! fn failed<B>(response: &http::Response<B>) -> Response {
//!     let exhausted = response.extensions().get::<Exhausted>();
//!     let status = match exhausted.map(Exhausted::reason) {
//!         Some(StopReason::DeadlineReached | StopReason::DeadlineTooClose) => StatusCode::GATEWAY_TIMEOUT,
//!         _ => StatusCode::BAD_GATEWAY,
//!     };
//!     status.into_response()
//! }
//!
//! assert_eq!(failed(&http::Response::new(())).status(), 502);
//! ```
//!
//! # Whom to trust
//!
//! Everybody's headers are read by default. They can only reduce what is done for the one request that
//! carries them: shorten it, skip its retries, withhold its deposit. Nobody can lengthen a time, take
//! from a budget or touch another request. Still, strangers have no business there:
//! [`edge()`](crate::DeadlineLayer::edge) removes the headers from requests unread, and tells nobody
//! what was given up and why. Use it for the first service behind the internet, and nowhere else: further
//! down it would cut the chain in two.
//!
//! A client's layer tells every host how much time is left and which attempt it is.
//! [`propagate_to`](crate::RetryBudgetLayer::propagate_to) keeps that to hosts of your own; the others get
//! none of the headers.
//!
//! ```
//! use tower_retry_budget::{DeadlineLayer, RetryBudgetLayer};
//!
//! let edge = DeadlineLayer::new().edge();
//! let client = RetryBudgetLayer::new()
//!     .propagate_to(|uri| uri.host().is_some_and(|host| host.ends_with(".internal")));
//! # let _ = (edge, client);
//! ```
