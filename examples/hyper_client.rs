//! The layer over hyper-util's pooled client.
//!
//! Five lines make the client; after that it is used like any other `tower` service. The example
//! starts an axum server on loopback that fails on demand, makes four calls, and prints what the
//! caller can learn of each:
//!
//! - a call that a retry saved: the response says so in a `RetryInfo`;
//! - a call that brings a policy of its own and is not retried;
//! - a `POST`, which is not repeated, and why;
//! - a call that was given up: a `503` with a reason, and the same details as a typed `Exhausted`.
//!
//! ```text
//! cargo run --example hyper_client
//! ```

use axum::{
    Router,
    extract::{Path, State},
    http::{Request, StatusCode},
    routing::any,
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use std::{
    collections::HashMap,
    error::Error,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::net::TcpListener;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_retry_budget::{
    Exhausted, RetryBudgetLayer, RetryInfo, RetryPolicy,
    reason::{SkipReason, StopReason},
};

type Counts = Arc<Mutex<HashMap<String, u32>>>;

/// `/blip/2` fails twice with a `502`, then succeeds.
async fn blip(
    Path((name, failures)): Path<(String, u32)>,
    State(counts): State<Counts>,
) -> StatusCode {
    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
    let count = counts.entry(name).or_default();
    *count += 1;
    if *count <= failures {
        return StatusCode::BAD_GATEWAY;
    }
    StatusCode::OK
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let counts = Counts::default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}", listener.local_addr()?);
    let app = Router::new().route("/{name}/{failures}", any(blip));
    let app = app.with_state(counts.clone());
    tokio::spawn(async { axum::serve(listener, app).await });
    let sent = |name: &str| {
        let counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.get(name).copied().unwrap_or_default()
    };

    // The five lines. hyper-util by itself repeats a request that never got onto a reused
    // connection; switched off here, so that the counts below are this layer's alone.
    let mut client = ServiceBuilder::new()
        .layer(RetryBudgetLayer::default())
        .service(
            Client::builder(TokioExecutor::new())
                .retry_canceled_requests(false)
                .build_http(),
        );

    let request = Request::get(format!("{server}/saved/2")).body(Full::<Bytes>::default())?;
    let response = client.ready().await?.call(request).await?;
    let info = response
        .extensions()
        .get::<RetryInfo>()
        .ok_or("no RetryInfo")?;
    println!("GET  /saved/2  -> {}", response.status());
    let waited = info.waited.as_millis();
    println!("     {} attempts, {waited} ms of waiting", info.attempts);
    assert_eq!((response.status().as_u16(), info.attempts), (200, 3));
    assert_eq!(sent("saved"), 3);

    let mut request = Request::get(format!("{server}/once/2")).body(Full::default())?;
    request.extensions_mut().insert(RetryPolicy::never());
    let response = client.ready().await?.call(request).await?;
    println!(
        "GET  /once/2   -> {}, with RetryPolicy::never()",
        response.status()
    );
    assert_eq!((response.status().as_u16(), sent("once")), (502, 1));

    let request = Request::post(format!("{server}/order/2")).body(Full::from("an order"))?;
    let response = client.ready().await?.call(request).await?;
    let info = response
        .extensions()
        .get::<RetryInfo>()
        .ok_or("no RetryInfo")?;
    println!("POST /order/2  -> {}", response.status());
    println!(
        "     {} attempt, not retried: {}",
        info.attempts,
        info.skipped.ok_or("no reason")?
    );
    assert_eq!(info.skipped, Some(SkipReason::NotIdempotent));
    assert_eq!((response.status().as_u16(), sent("order")), (502, 1));

    let request = Request::get(format!("{server}/down/99")).body(Full::default())?;
    let response = client.ready().await?.call(request).await?;
    let exhausted = response
        .extensions()
        .get::<Exhausted>()
        .ok_or("no Exhausted")?;
    println!("GET  /down/99  -> {}: {exhausted}", response.status());
    for attempt in exhausted.history() {
        let status = attempt.status().map_or(0, |status| status.as_u16());
        let wait = attempt.wait().as_millis();
        println!(
            "     attempt {}: {status}, waited {wait} ms",
            attempt.attempt()
        );
    }
    assert_eq!(exhausted.reason(), StopReason::MaxAttempts);
    assert_eq!(exhausted.last_status(), Some(StatusCode::BAD_GATEWAY));
    assert_eq!((response.status().as_u16(), sent("down")), (503, 3));
    let body = response.into_body().collect().await?.to_bytes();
    println!("     {}", String::from_utf8(body.to_vec())?);
    Ok(())
}
