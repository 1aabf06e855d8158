//! Whoever watches is told of everything once, and in order.

#[path = "../support/mod.rs"]
mod support;

mod cancelled;
mod events;
