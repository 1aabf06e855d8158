//! Attempts are lowered while a dependency is not well, and none is made while a breaker is open.

#[path = "../support/mod.rs"]
mod support;

mod breaker;
mod limits;
mod tracker;
