//! What is repeated only on proof that the server has not processed it, over real connections.

mod attempts;
mod connecting;
mod http1;
#[cfg(feature = "http2")]
mod http2;
mod idle;
#[path = "../support/mod.rs"]
mod support;

use support::{Body, client::request};

fn get(uri: &str) -> http::Request<Body> {
    request("GET", uri, Body::default())
}

fn post(uri: &str) -> http::Request<Body> {
    request("POST", uri, Body::from("abc"))
}
