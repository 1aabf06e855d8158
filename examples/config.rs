//! A configuration as data, and what an operator does with it while calls go by.
//!
//! Without a file it shows a configuration in TOML, what of it is in force, and four calls to a dependency
//! that always fails:
//!
//! 1. by the configuration that the layer was made with;
//! 2. one that sleeps before a retry while another configuration is put into force: it ends by the old one,
//!    and the calls after it go by the new one;
//! 3. with retries only observed: one attempt, and what would have been retried is told;
//! 4. one that sleeps before a retry when retries are switched off: it ends at once.
//!
//! With a file it checks that, and prints what would be in force, and its hash:
//!
//! ```text
//! cargo run --example config
//! cargo run --example config -- FILE.toml
//! ```

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use std::{
    convert::Infallible,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep};
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_retry_budget::{
    Exhausted, RetryBudgetLayer, RetryInfo,
    body::ReplayBody,
    config::RetryConfig,
    observe::{CallView, Observe, Shadow},
};

const BEFORE: &str = r#"
policy = "interactive"
budget = "careful"

[policies.interactive]
max_attempts = 3
total_timeout = "5s"
backoff = { base = "200ms", factor = 1, jitter = "none" }

[policies.storage]
preset = "metered_api"

[budgets.careful]
ratio = 0.1
initial = 10

[aliases]
"*.s3.amazonaws.com" = "s3"

[routes."*.s3.amazonaws.com"]
policy = "storage"
"#;

/// The same, but for the attempts of one policy. The budget has not changed, and keeps what it holds.
fn with_two_attempts() -> String {
    BEFORE.replace("max_attempts = 3", "max_attempts = 2")
}

fn read(text: &str) -> Result<RetryConfig, BoxError> {
    let deserializer = toml::Deserializer::parse(text)?;
    Ok(RetryConfig::from_deserializer(deserializer)?)
}

/// Prints what gates that are only observed would have decided.
struct Shadows;

impl Observe for Shadows {
    fn shadow(&self, _: &CallView<'_>, shadow: &Shadow) {
        let (gate, decision) = (shadow.gate, shadow.decision.as_str());
        println!("    the gate `{gate}` would have decided: {decision}");
    }
}

/// Makes one call, and says how it went.
async fn call<S, R>(service: &S, sent: &AtomicU32) -> Result<(), BoxError>
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Clone,
    S::Error: Into<BoxError>,
{
    let (before, start) = (sent.load(Ordering::Relaxed), Instant::now());
    let request = Request::get("http://search:8080/").body(Full::default())?;
    let response = service.clone().oneshot(request).await;
    let response = response.map_err(Into::into)?;
    let attempts = sent.load(Ordering::Relaxed) - before;
    let elapsed = start.elapsed().as_millis();
    let extensions = response.extensions();
    let why = match (extensions.get::<Exhausted>(), extensions.get::<RetryInfo>()) {
        (Some(exhausted), _) => exhausted.reason().as_str(),
        (
            None,
            Some(RetryInfo {
                skipped: Some(reason),
                ..
            }),
        ) => reason.as_str(),
        _ => "its own answer",
    };
    let status = response.status().as_u16();
    println!("    {status} after {elapsed} ms, requests: {attempts}, reason: {why}");
    Ok(())
}

async fn show() -> Result<(), BoxError> {
    let config = read(BEFORE)?;
    println!(
        "{BEFORE}\nin force, hash {}:\n{}\n",
        config.hash(),
        pretty(&config)?
    );

    let layer = RetryBudgetLayer::from_config(&config).observe(Shadows);
    let control = layer.control();
    let sent = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&sent);
    let service = layer.layer(service_fn(move |_: Request<ReplayBody<Full<Bytes>>>| {
        count.fetch_add(1, Ordering::Relaxed);
        let mut response = Response::new(Full::<Bytes>::default());
        *response.status_mut() = StatusCode::BAD_GATEWAY;
        async { Ok::<_, Infallible>(response) }
    }));

    println!("1. three attempts");
    call(&service, &sent).await?;

    println!("2. a reload while a call sleeps, and a call after it");
    let reload = async {
        sleep(Duration::from_millis(100)).await;
        let config = read(&with_two_attempts())?;
        control.reload(&config);
        println!("    reloaded: hash {}", config.hash());
        Ok::<_, BoxError>(())
    };
    let (slept, reloaded) = tokio::join!(call(&service, &sent), reload);
    slept.and(reloaded)?;
    call(&service, &sent).await?;

    println!("3. retries only observed");
    let observed = format!("{}\n[gates]\nretry = \"observe\"\n", with_two_attempts());
    control.reload(&read(&observed)?);
    call(&service, &sent).await?;

    println!("4. switched off while a call sleeps");
    control.reload(&config);
    let off = async {
        sleep(Duration::from_millis(100)).await;
        control.retries_off();
    };
    tokio::join!(call(&service, &sent), off).0
}

/// What is in force, as a person reads it.
fn pretty(config: &RetryConfig) -> Result<String, serde_json::Error> {
    let value: serde_json::Value = serde_json::from_str(config.effective())?;
    serde_json::to_string_pretty(&value)
}

/// Checks a file.
fn check(file: &str) -> Result<(), BoxError> {
    let config = read(&std::fs::read_to_string(file)?)?;
    println!("{}\nhash {}", pretty(&config)?, config.hash());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match std::env::args().nth(1) {
        Some(file) => check(&file).map_err(|error| format!("{file}: {error}").into()),
        None => show().await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
