//! The example's alerts and dashboard, by Prometheus's own tools and against a real Prometheus that
//! scrapes the running example. Debian has both in the package `prometheus`.

#[path = "../../examples/observability/app.rs"]
#[allow(dead_code, reason = "the example uses all of it")]
mod app;

mod prometheus;
mod rules;
mod scraped;
