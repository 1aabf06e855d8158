//! reqwest under the layer: [`Client`](::reqwest::Client) as a service, and request builders that are
//! sent through it.
//!
//! ```no_run
//! use tower::Layer;
//! use tower_retry_budget::{RetryBudgetLayer, reqwest::{ClientExt, RequestBuilderExt}};
//!
//! # async fn example() -> Result<(), reqwest::Error> {
//! let client = reqwest::Client::builder()
//!     .retry(reqwest::retry::never()) // or the attempts multiply, see below
//!     .build()?;
//! let retry = RetryBudgetLayer::default().layer(client.clone().into_service());
//!
//! let response = client.get("http://search:8080/find").send_with(&retry).await?;
//! # let _ = response;
//! # Ok(())
//! # }
//! ```
//!
//! `retry` is cheap to clone, and [`send_with`](RequestBuilderExt::send_with) takes it by reference, so
//! that many calls can go through it at once. It is an ordinary service over
//! [`http::Request`] as well, for those who have tower middleware around it.
//!
//! A policy, a [`Deadline`](crate::Deadline) or an [`Idempotent`](crate::policy::Idempotent) for one
//! request goes between the builder and `send_with`. What became of a call is in the extensions of its
//! response:
//!
//! ```no_run
//! use tower_retry_budget::{Exhausted, RetryPolicy, reqwest::RequestBuilderExt};
//! use tower_retry_budget::{RetryBudget, reqwest::ReqwestService};
//!
//! # async fn example(
//! #     client: reqwest::Client,
//! #     retry: RetryBudget<ReqwestService>,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! let policy = RetryPolicy::builder().max_attempts(5).build()?;
//! let request = client.put("http://store:8080/a").body("value").policy(policy);
//! let response = request.send_with(&retry).await?;
//! if let Some(exhausted) = response.extensions().get::<Exhausted>() {
//!     eprintln!("{exhausted}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # reqwest's own retries
//!
//! **Switch them off** with [`reqwest::retry::never()`](::reqwest::retry::never) when the client is
//! built, as above; nobody can see from a finished client whether that was done. Otherwise the counts
//! multiply: three attempts here over a client that is itself allowed two retries are nine requests on
//! the wire, of which neither the budget nor [`RetryInfo`](crate::RetryInfo) knows more than three. Even
//! a client that was told nothing about retries repeats streams that HTTP/2 servers refuse.
//!
//! # Redirects
//!
//! reqwest follows redirects by itself, and does not say which of its requests failed: a POST may have
//! been processed, and the server that it was redirected to may be down. So a failure to connect is
//! no proof that nothing was processed, and only idempotent requests are retried after it. Where the
//! client follows no redirects ([`Policy::none`](::reqwest::redirect::Policy::none)), say so in the
//! policy ([`no_redirects`](crate::policy::RetryPolicyBuilder::no_redirects)), and a POST whose
//! connection was refused is sent again.
//!
//! # Time-outs
//!
//! - The [policy's](crate::policy::RetryPolicyBuilder) `total_timeout` limits the call up to the
//!   response head, waits included. No setting of reqwest does.
//! - Its `attempt_timeout` limits one attempt up to the response head, and tells the server so in
//!   [`x-deadline-remaining-ms`](crate::deadline::DEADLINE_REMAINING_MS). Prefer it.
//! - [`RequestBuilder::timeout`](::reqwest::RequestBuilder::timeout) and
//!   [`ClientBuilder::timeout`](::reqwest::ClientBuilder::timeout) start anew with **each attempt**, and
//!   go on until the end of the response body. They are worth setting as a limit for that body. Three
//!   attempts under a time-out of 10 s may take 30 s and the waits.
//! - [`ClientBuilder::connect_timeout`](::reqwest::ClientBuilder::connect_timeout) tells a server that
//!   is gone from one that is slow. Set it well below the other two.
//!
//! # Bodies
//!
//! A body that is in memory, or that has a known length of up to the
//! [replay limit](crate::policy::RetryPolicyBuilder::replay_limit) and comes in one piece, is handed to
//! reqwest as bytes. Its length is sent, and redirects that repeat it (307, 308) work. Everything else is
//! handed on as a stream, with its length when it has one; reqwest does not repeat a stream on a redirect,
//! and returns the redirect instead. Bytes over the replay limit count as read once they are handed on: to
//! have larger ones retried raise the limit, and for files use a
//! [`BodyFactory`](crate::body::BodyFactory) of [`reqwest::Body`](::reqwest::Body).
//!
//! # Errors
//!
//! Errors are reqwest's own, unless the layer made a response in place of one. A URI that is not absolute
//! is a builder error, as in reqwest itself. Connections that were never established are proof that
//! nothing was processed under [`no_redirects`](#redirects) only; time-outs and connections that broke are failures without proof; all else, such
//! as a redirect loop, a certificate or the caller's own body, is not repeated.
//!
//! # reqwest-middleware
//!
//! The layer can stand in a chain of `reqwest-middleware`, with [`into_reqwest_request`],
//! [`into_http_response`] and [`into_reqwest_response`]: `examples/reqwest_middleware.rs` is a page of
//! code.

mod convert;
mod send;
mod service;
#[cfg(test)]
mod tests;

pub use self::{
    convert::{into_http_response, into_reqwest_request, into_reqwest_response},
    send::{RequestBuilderExt, RetryRequest, SendWith},
    service::{ClientExt, ReqwestFuture, ReqwestService},
};
