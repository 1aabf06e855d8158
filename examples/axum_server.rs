//! The layer around an axum server's own handlers.
//!
//! `RetryBudgetLayer::for_handlers()` repeats nothing by itself: it is safe around any router. One
//! route is given a policy that asks for three attempts, for a handler that reads from a database
//! that blips. The example starts the server on loopback, calls each route once with a plain client,
//! and prints what the client saw and how often the handler ran:
//!
//! - `GET /report` is repeated inside the server, so the client never learns of the two failures;
//! - `GET /health` has no policy, so its `503` goes out as it is;
//! - `POST /orders` is never repeated, though it is on the route with the policy;
//! - `GET /report` during an outage ends in a `503` that tells a stranger nothing.
//!
//! ```text
//! cargo run --example axum_server
//! ```

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{Method, Request, StatusCode},
    routing::{get, post},
};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::net::TcpListener;
use tower_retry_budget::{
    RetryBudgetLayer,
    policy::{Backoff, RetryPolicy},
};

/// A database that fails the next few queries.
#[derive(Clone, Default)]
struct Database {
    queries: Arc<AtomicU32>,
    failures: Arc<AtomicU32>,
}

impl Database {
    fn query(&self) -> Result<&'static str, StatusCode> {
        self.queries.fetch_add(1, Ordering::SeqCst);
        let left = |left: u32| left.checked_sub(1);
        match self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, left)
        {
            Ok(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
            Err(_) => Ok("42 rows"),
        }
    }
}

async fn handler(State(database): State<Database>) -> Result<&'static str, StatusCode> {
    database.query()
}

fn router(database: Database) -> Result<Router, Box<dyn Error>> {
    let patient = RetryPolicy::builder()
        .max_attempts(3)
        .throttled_backoff(Backoff::fixed(Duration::from_millis(20)))
        .build()?;
    let layer = RetryBudgetLayer::for_handlers().policy_fn(move |request| {
        let database = matches!(request.uri.path(), "/report" | "/orders");
        database.then(|| patient.clone())
    });
    Ok(Router::new()
        .route("/report", get(handler))
        .route("/health", get(handler))
        .route("/orders", post(handler))
        .with_state(database)
        .layer(layer))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = Database::default();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = format!("http://{}", listener.local_addr()?);
    let app = router(database.clone())?;
    tokio::spawn(async { axum::serve(listener, app).await });

    // method, path, failures to come, what the client sees, how often the handler runs
    let cases = [
        (Method::GET, "/report", 0, 200, 1, "nothing is wrong"),
        (
            Method::GET,
            "/report",
            2,
            200,
            3,
            "a blip: two failures, and nobody noticed",
        ),
        (
            Method::GET,
            "/health",
            1,
            503,
            1,
            "no policy: its own answer goes out",
        ),
        (
            Method::POST,
            "/orders",
            1,
            503,
            1,
            "a POST is never repeated",
        ),
        (
            Method::GET,
            "/report",
            9,
            503,
            3,
            "an outage: three attempts, then a 503",
        ),
    ];
    let client = Client::builder(TokioExecutor::new()).build_http();
    for (method, path, failures, status, runs, what) in cases {
        database.failures.store(failures, Ordering::SeqCst);
        database.queries.store(0, Ordering::SeqCst);
        let (seen, body) = call(&client, &method, &format!("{server}{path}")).await?;
        let ran = database.queries.load(Ordering::SeqCst);
        let call = format!("{method} {path}");
        println!(
            "{call:<12} -> {}, handler ran {ran}x ({what})",
            seen.as_u16()
        );
        if !body.is_empty() {
            println!("{:16}{body}", "");
        }
        assert_eq!((seen.as_u16(), ran), (status, runs), "{method} {path}");
        assert!(!body.contains("attempts"), "a peer is told no details");
    }
    Ok(())
}

async fn call(
    client: &Client<HttpConnector, Full<Bytes>>,
    method: &Method,
    uri: &str,
) -> Result<(StatusCode, String), Box<dyn Error>> {
    let request = Request::builder().method(method).uri(uri);
    let response = client.request(request.body(Full::default())?).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.to_vec())?))
}
