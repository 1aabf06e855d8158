//! What is written into metrics, under which names, and that it is bounded.

#[path = "../support/mod.rs"]
mod support;

mod bounds;
mod names;
mod scrape;
mod values;
