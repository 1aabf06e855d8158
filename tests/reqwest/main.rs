//! The layer around real reqwest clients that talk to real servers.

#![cfg(feature = "reqwest")]

mod bodies;
mod builders;
mod retries;
mod server;
#[path = "../support/mod.rs"]
mod support;
mod times;

use reqwest::{Client, ClientBuilder};
use support::{MS, ample, steady};
use tower::Layer;
use tower_retry_budget::{
    Exhausted, RetryBudget, RetryBudgetLayer, RetryInfo,
    policy::{Backoff, RetryPolicyBuilder},
    reqwest::{ClientExt, ReqwestService},
};

/// A client as the docs say it should be built.
fn builder() -> ClientBuilder {
    Client::builder().no_proxy().retry(reqwest::retry::never())
}

fn client() -> Client {
    builder().build().expect("a client")
}

/// Waits of 10 ms.
fn quick() -> RetryPolicyBuilder {
    steady().throttled_backoff(Backoff::fixed(10 * MS))
}

/// The service of these tests: three attempts, short waits, a budget that lasts.
fn retry(client: Client) -> RetryBudget<ReqwestService> {
    let policy = quick().build().expect("a valid policy");
    let layer = RetryBudgetLayer::new().policy(policy).budget(ample());
    layer.layer(client.into_service())
}

fn info(response: &reqwest::Response) -> RetryInfo {
    *response.extensions().get().expect("no RetryInfo")
}

fn exhausted(response: &reqwest::Response) -> &Exhausted {
    let details = response.extensions().get();
    details.unwrap_or_else(|| panic!("not exhausted: {}", response.status()))
}
