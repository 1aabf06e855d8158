//! The whole main job, against real sockets: `cargo run --example quickstart`.
//!
//! A real server misbehaves on purpose. A hyper client and a reqwest client call it through the
//! layer. Every line that is printed is what the server saw, and every claim is checked: the exit
//! status is 0 only if all of them hold.

mod server;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use server::{Seen, Server};
use std::{
    convert::Infallible,
    error::Error,
    net::SocketAddr,
    time::{Duration, Instant},
};
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_retry_budget::{
    Exhausted, RetryBudgetLayer,
    reqwest::{ClientExt, RequestBuilderExt},
};

type Body = BoxBody<Bytes, Infallible>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (server, address) = Server::start().await?;
    let mut claims = Claims::default();

    // The five lines.
    let hyper = Client::builder(TokioExecutor::new()).build_http();
    let hyper = ServiceBuilder::new()
        .layer(RetryBudgetLayer::default())
        .service(hyper);

    title("A blip: the server fails once. Hyper client.");
    let response = send(&hyper, get(address, "/blip")).await?;
    let seen = show(&server, "/blip");
    claims.check(
        "the blip was saved by one retry",
        response.status() == 200 && seen.len() == 2,
    );

    title("A busy server: 429 with Retry-After: 1. Hyper client.");
    send(&hyper, get(address, "/busy")).await?;
    let seen = show(&server, "/busy");
    let waited = seen[1].at - seen[0].at;
    claims.check(
        "it waited at least the second it was asked for",
        waited >= Duration::from_secs(1),
    );

    title("A POST that may have been processed: 503. Hyper client.");
    let order = Full::from("one coffee").boxed();
    let response = send(&hyper, request(Method::POST, address, "/orders", order)).await?;
    let seen = show(&server, "/orders");
    claims.check("the order was not repeated", seen.len() == 1);
    claims.check(
        "the server's own answer came back",
        response.status() == 503 && response.extensions().get::<Exhausted>().is_none(),
    );

    title("A streamed upload of 40 kB: the server fails after it has read it all. Hyper client.");
    let pieces: Vec<Bytes> = (0..40_u8).map(|n| Bytes::from(vec![n; 1000])).collect();
    let upload = streamed(pieces.clone());
    send(&hyper, request(Method::PUT, address, "/upload", upload)).await?;
    let seen = show(&server, "/upload");
    let whole = pieces.concat();
    let sizes: Vec<_> = seen.iter().map(|seen| seen.body.len()).collect();
    println!("   bytes received per attempt: {sizes:?}");
    let same = seen.len() == 2 && seen.iter().all(|seen| seen.body == whole);
    claims.check("both attempts carried the same bytes", same);

    title("A JSON request with reqwest's own builder: the server fails once. Reqwest client.");
    let client = reqwest::Client::builder()
        .retry(reqwest::retry::never())
        .build()?;
    let retry = ServiceBuilder::new()
        .layer(RetryBudgetLayer::default())
        .service(client.clone().into_service());
    let response = client
        .put(format!("http://{address}/json"))
        .json(&["a", "b"])
        .send_with(&retry)
        .await?;
    let seen = show(&server, "/json");
    claims.check(
        "reqwest's request was retried",
        response.status() == 200 && seen.len() == 2,
    );
    let same = seen.iter().all(|seen| seen.body == r#"["a","b"]"#);
    claims.check("both attempts carried the JSON", same);

    title("An outage: 100 calls while all is well, then 500 calls that all fail. Hyper client.");
    outage(&mut claims).await?;

    claims.finish()
}

/// A dependency of its own, so that its budget is untouched.
async fn outage(claims: &mut Claims) -> Result<(), Box<dyn Error>> {
    let (server, address) = Server::start().await?;
    let hyper = Client::builder(TokioExecutor::new()).build_http();
    let hyper = ServiceBuilder::new()
        .layer(RetryBudgetLayer::default())
        .service(hyper);
    for _ in 0..100 {
        send(&hyper, get(address, "/fine")).await?;
    }
    let mut last = None;
    for _ in 0..10 {
        let calls = (0..50).map(|_| {
            let hyper = hyper.clone();
            tokio::spawn(async move { send(&hyper, get(address, "/down")).await })
        });
        for call in calls.collect::<Vec<_>>() {
            last = Some(call.await?.map_err(|error| error.to_string())?);
        }
    }
    let sent = server.seen("/down").len();
    println!(
        "   500 calls sent {sent} requests: the budget allowed {} retries.",
        sent - 500
    );
    println!("   Without a budget it would have been 1500.");
    claims.check("the outage got few retries", (501..=550).contains(&sent));

    let last = last.ok_or("no call was made")?;
    let (head, body) = last.into_parts();
    let body = body.collect().await?.to_bytes();
    println!("\n   The last answer, whole:\n");
    println!("   HTTP/1.1 {}", head.status);
    for (name, value) in &head.headers {
        println!("   {name}: {}", value.to_str()?);
    }
    let problem: serde_json::Value = serde_json::from_slice(&body)?;
    println!("\n   {}", String::from_utf8_lossy(&body));
    claims.check(
        "the 503 says why",
        problem["reason"] == "budget" && problem["attempts"] == 1,
    );
    Ok(())
}

async fn send<S, R>(service: &S, request: Request<Body>) -> Result<Response<R>, S::Error>
where
    S: Service<Request<Body>, Response = Response<R>> + Clone,
{
    service.clone().oneshot(request).await
}

fn get(address: SocketAddr, path: &str) -> Request<Body> {
    request(Method::GET, address, path, Full::default().boxed())
}

fn request(method: Method, address: SocketAddr, path: &str, body: Body) -> Request<Body> {
    let request = Request::builder().method(method);
    let request = request.uri(format!("http://{address}{path}"));
    request.body(body).expect("a valid request")
}

fn streamed(pieces: Vec<Bytes>) -> Body {
    let frames = pieces
        .into_iter()
        .map(|piece| Ok(http_body::Frame::data(piece)));
    StreamBody::new(tokio_stream::iter(frames)).boxed()
}

fn title(text: &str) {
    println!("\n{text}");
}

/// Prints what reached the server, a line per attempt.
fn show(server: &Server, path: &str) -> Vec<Seen> {
    let seen = server.seen(path);
    println!("   attempt  sent at  after a wait of  answered  time left, as told");
    let start = seen[0].at;
    let mut before = start;
    for seen in &seen {
        let attempt = seen.attempt.as_deref().unwrap_or("-");
        let remaining = seen.remaining.as_deref().unwrap_or("-");
        let at = (seen.at - start).as_millis();
        let wait = (seen.at - before).as_millis();
        let answered = seen.answered;
        println!("   {attempt:7}  {at:4} ms  {wait:12} ms  {answered:8}  {remaining:>15} ms");
        before = seen.at;
    }
    seen
}

/// What the example says of the crate, and whether it is so.
struct Claims {
    started: Instant,
    broken: Vec<String>,
}

impl Default for Claims {
    fn default() -> Self {
        Self {
            started: tokio::time::Instant::now().into_std(),
            broken: Vec::new(),
        }
    }
}

impl Claims {
    fn check(&mut self, claim: &str, holds: bool) {
        println!("   {} {claim}", if holds { "ok:" } else { "NOT SO:" });
        if !holds {
            self.broken.push(claim.to_owned());
        }
    }

    fn finish(self) -> Result<(), Box<dyn Error>> {
        let took = self.started.elapsed();
        if !self.broken.is_empty() {
            return Err(format!("claims that did not hold: {:?}", self.broken).into());
        }
        println!("\nAll of it held, in {:.1} s.", took.as_secs_f64());
        Ok(())
    }
}
