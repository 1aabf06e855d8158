//! Chains of real servers and clients on loopback, all of which may retry: what reaches the leaf, what
//! the deadline does to them, and what they tell each other.
//!
//! A chain of n hops has n clients that retry: the test's own, and one in each of the n - 1 servers
//! between it and the leaf.

mod budgets;
mod callers;
mod counts;
mod deadlines;
mod hops;
mod markers;
mod strangers;
#[path = "../support/mod.rs"]
mod support;
