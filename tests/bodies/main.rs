//! What attempts carry of a request body, over real connections.

mod content;
mod early;
mod large;
mod skipped;
#[path = "../support/mod.rs"]
mod support;

fn full(data: &'static str) -> support::Body {
    support::Body::from(data)
}
