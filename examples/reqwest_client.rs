//! A reqwest client whose calls go through the layer: `cargo run --example reqwest_client`.
//!
//! It starts the server that it calls, prints what became of each call, and fails when that is not
//! what it says.

use axum::{Json, Router, extract::Request, http::StatusCode, response::IntoResponse};
use serde_json::json;
use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::Instant;
use tower::Layer;
use tower_retry_budget::{
    Exhausted, RetryBudgetLayer, RetryInfo, RetryPolicy,
    reqwest::{ClientExt, RequestBuilderExt},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (url, hits) = start_server().await?;

    // All that it takes.
    let builder = reqwest::Client::builder().no_proxy(); // the server is on this machine
    let client = builder.retry(reqwest::retry::never()).build()?;
    let retry = RetryBudgetLayer::default().layer(client.clone().into_service());
    let request = client
        .put(format!("{url}/blip"))
        .json(&json!({ "name": "value" }));
    let response = request.send_with(&retry).await?;

    tell("PUT  /blip", &response);
    check("the blip was saved", response.status() == 200)?;
    check(
        "by one retry",
        attempts(&response) == 2 && hits.of("/blip") == 2,
    )?;
    check(
        "with the same body",
        response.text().await? == r#"{"name":"value"}"#,
    )?;

    let started = Instant::now();
    let response = client.get(format!("{url}/busy")).send_with(&retry).await?;
    tell("GET  /busy", &response);
    check(
        "a busy server got its time",
        started.elapsed() >= Duration::from_secs(1),
    )?;

    let order = client.post(format!("{url}/order")).body("one coffee");
    let response = order.send_with(&retry).await?;
    tell("POST /order", &response);
    check("the order was not placed twice", hits.of("/order") == 1)?;
    check(
        "the answer is the server's own",
        response.text().await? == "down\n",
    )?;

    // A time limit for each attempt, and for this request only.
    let policy = RetryPolicy::builder().attempt_timeout(Duration::from_millis(200));
    let slow = client.get(format!("{url}/slow")).policy(policy.build()?);
    let response = slow.send_with(&retry).await?;
    tell("GET  /slow", &response);
    check(
        "the second attempt was fast enough",
        attempts(&response) == 2,
    )?;

    let response = client.get(format!("{url}/down")).send_with(&retry).await?;
    tell("GET  /down", &response);
    check(
        "it was given up after three attempts",
        hits.of("/down") == 3,
    )?;
    check("the answer knows its URL", response.url().path() == "/down")?;
    println!("{}", response.text().await?);
    Ok(())
}

fn tell(call: &str, response: &reqwest::Response) {
    let outcome = match response.extensions().get::<Exhausted>() {
        Some(exhausted) => exhausted.to_string(),
        None => format!("{} attempt(s)", attempts(response)),
    };
    println!("{call:<12} {} - {outcome}", response.status());
}

fn attempts(response: &reqwest::Response) -> u32 {
    let info = response.extensions().get::<RetryInfo>();
    info.map_or(1, |info| info.attempts)
}

fn check(claim: &str, holds: bool) -> Result<(), String> {
    if holds {
        println!("             - {claim}");
        Ok(())
    } else {
        Err(format!("not so: {claim}"))
    }
}

/// How often each path was asked for.
#[derive(Clone, Default)]
struct Hits(Arc<Mutex<HashMap<String, u32>>>);

impl Hits {
    fn add(&self, path: &str) -> u32 {
        let mut hits = self.0.lock().expect("nobody panics with it");
        let hits = hits.entry(path.to_owned()).or_default();
        *hits += 1;
        *hits
    }

    fn of(&self, path: &str) -> u32 {
        let hits = self.0.lock().expect("nobody panics with it");
        hits.get(path).copied().unwrap_or(0)
    }
}

async fn start_server() -> Result<(String, Hits), std::io::Error> {
    let hits = Hits::default();
    let counter = hits.clone();
    let app = Router::new().fallback(async move |request: Request| {
        let path = request.uri().path().to_owned();
        let hit = counter.add(&path);
        let body = request.into_body();
        let body = axum::body::to_bytes(body, 1024).await.unwrap_or_default();
        answer(&path, hit, body).await
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok((url, hits))
}

async fn answer(path: &str, hit: u32, body: axum::body::Bytes) -> axum::response::Response {
    match (path, hit) {
        ("/blip", 1) | ("/down", _) => StatusCode::BAD_GATEWAY.into_response(),
        ("/blip", _) => body.into_response(),
        ("/busy", 1) => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")]).into_response(),
        ("/order", _) => (StatusCode::SERVICE_UNAVAILABLE, "down\n").into_response(),
        ("/slow", 1) => {
            tokio::time::sleep(Duration::from_secs(60)).await;
            Json("late").into_response()
        }
        _ => Json("well").into_response(),
    }
}
