//! What an operator sees of retries: metrics for Prometheus, and spans for OpenTelemetry.
//!
//! A service calls two dependencies, of which one, search, goes from healthy over flaky to broken. The
//! example prints the spans of one call that needed a retry, as OpenTelemetry's exporter hands them
//! over, and then, for each state of search, what the metrics say of three seconds of traffic.
//!
//! ```text
//! cargo run --example observability --features metrics
//! cargo run --example observability --features metrics -- --serve 127.0.0.1:9464
//! ```
//!
//! With `--serve` it stays up, under traffic, until it is stopped. Have Prometheus scrape it with
//! `prometheus --config.file=examples/observability/prometheus.yml`, break it with
//! `curl -X POST http://127.0.0.1:9464/health/broken`, and load `dashboard.json` into Grafana.

mod app;

use app::{App, Health};
use opentelemetry::trace::TracerProvider;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanExporter};
use std::{error::Error, sync::Arc, time::Duration};
use tracing::{Level, instrument::WithSubscriber};
use tracing_subscriber::{Layer, Registry, filter::Targets, layer::SubscriberExt};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut args = std::env::args().skip(1);
    if args.next().as_deref() == Some("--serve") {
        let address = args.next().unwrap_or_else(|| "127.0.0.1:9464".to_owned());
        let app = App::start(address.parse()?).await?;
        println!("metrics on http://{}/metrics", app.address);
        app.traffic().await;
        return Ok(());
    }

    let app = App::start(([127, 0, 0, 1], 0).into()).await?;
    println!("-- the spans of one call that needed a retry");
    traced_call(&app).await?;
    for health in [Health::Healthy, Health::Flaky, Health::Broken] {
        app.set_health(health);
        _ = tokio::time::timeout(Duration::from_secs(3), app.traffic()).await;
        println!("\n-- search is {health:?}");
        print_calls(&app.scrape());
    }
    Ok(())
}

/// Calls until one call was saved by a retry, and exports its spans.
async fn traced_call(app: &App) -> Result<(), Box<dyn Error + Send + Sync>> {
    app.set_health(Health::Flaky);
    let stdout = opentelemetry_stdout::SpanExporter::default();
    let kept = InMemorySpanExporter::default();
    let collector = SdkTracerProvider::builder()
        .with_simple_exporter(kept.clone())
        .build();
    let layer = tracing_opentelemetry::layer()
        .with_tracer(collector.tracer("example"))
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(Targets::new().with_target("tower_retry_budget", Level::DEBUG));
    let subscriber = Arc::new(Registry::default().with(layer));
    for _ in 0..1000 {
        kept.reset();
        app.search().with_subscriber(subscriber.clone()).await;
        let spans = kept.get_finished_spans()?;
        if spans.len() == 3 {
            return Ok(stdout.export(spans).await?);
        }
    }
    Err("no call needed a retry".into())
}

/// What has been counted of search so far.
fn print_calls(scrape: &str) {
    let told = [
        "calls_total",
        "retries_total",
        "budget_denied_total",
        "budget_balance",
    ];
    let mut lines: Vec<_> = scrape
        .lines()
        .filter(|line| line.contains(r#"dependency="search""#))
        .filter(|line| {
            let name = line.strip_prefix("tower_retry_").unwrap_or_default();
            told.iter().any(|told| name.starts_with(told))
        })
        .collect();
    lines.sort_unstable();
    println!("{}", lines.join("\n"));
}
