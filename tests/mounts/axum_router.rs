//! Around an axum server's own handlers, in process and on a real socket.

use crate::support::{MS, steady};
use axum::{
    Router,
    body::{Body, Bytes},
    http::{Method, Request, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tokio::net::TcpListener;
use tower::ServiceExt;
use tower_http::timeout::TimeoutLayer;
use tower_retry_budget::{
    Exhausted, RetryBudgetLayer, RetryInfo, RetryPolicy, budget::TokenBudget, reason::StopReason,
};

/// Handlers that fail a number of times, and echo what they were sent afterwards.
#[derive(Clone)]
struct Flaky {
    calls: Arc<AtomicUsize>,
    failures: usize,
    status: StatusCode,
    retry_after: Option<&'static str>,
}

impl Flaky {
    fn new(failures: usize, status: u16) -> Self {
        Self {
            calls: Arc::default(),
            failures,
            status: StatusCode::from_u16(status).expect("a status"),
            retry_after: None,
        }
    }

    fn answer(&self, body: Bytes) -> Response {
        if self.calls.fetch_add(1, Ordering::SeqCst) >= self.failures {
            return body.into_response();
        }
        let mut response = self.status.into_response();
        if let Some(value) = self.retry_after {
            let value = value.parse().expect("a valid header");
            response.headers_mut().insert(RETRY_AFTER, value);
        }
        response
    }

    fn router(&self) -> Router {
        let flaky = self.clone();
        Router::new().route(
            "/",
            any(move |body: Bytes| async move { flaky.answer(body) }),
        )
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

fn retrying() -> RetryBudgetLayer {
    RetryBudgetLayer::for_handlers().policy(policy())
}

fn policy() -> RetryPolicy {
    let policy = steady().throttled_backoff(tower_retry_budget::policy::Backoff::fixed(10 * MS));
    policy.build().expect("a valid policy")
}

fn request(method: &Method) -> Request<Body> {
    let request = Request::builder().method(method).uri("/");
    request.body(Body::from("abc")).expect("a valid request")
}

async fn once(app: &Router, method: &Method) -> Response {
    let answer = app.clone().oneshot(request(method)).await;
    answer.unwrap_or_else(|never| match never {})
}

async fn text(response: Response) -> String {
    let body = response.into_body().collect().await.expect("a whole body");
    String::from_utf8(body.to_bytes().to_vec()).expect("text")
}

#[tokio::test(start_paused = true)]
async fn handlers_are_not_retried_unless_a_policy_asks_for_it() {
    for status in [500, 503, 429] {
        let flaky = Flaky::new(1, status);
        let app = flaky.router().layer(RetryBudgetLayer::for_handlers());
        let response = once(&app, &Method::GET).await;
        assert_eq!(response.status(), status);
        assert!(response.extensions().get::<Exhausted>().is_none());
        assert_eq!(flaky.calls(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_is_retried_when_the_layers_policy_asks_for_it() {
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let flaky = Flaky::new(2, 503);
        let app = flaky.router().layer(retrying());
        let response = once(&app, &method).await;
        assert_eq!(response.status(), 200);
        let info = response.extensions().get::<RetryInfo>().expect("retried");
        assert_eq!(info.attempts, 3);
        assert_eq!(text(response).await, "abc");
        assert_eq!(flaky.calls(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_says_on_purpose_is_not_retried() {
    let by = |status, retry_after| Flaky {
        retry_after,
        ..Flaky::new(1, status)
    };
    let cases = [
        (Method::GET, by(429, None)),
        (Method::GET, by(500, None)),
        (Method::GET, by(503, Some("1"))),
        (Method::POST, by(503, None)),
        (Method::PATCH, by(502, None)),
    ];
    for (method, flaky) in cases {
        let app = flaky.router().layer(retrying());
        let response = once(&app, &method).await;
        assert_eq!(response.status(), flaky.status);
        assert_eq!(flaky.calls(), 1, "{method} {}", flaky.status);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idempotency_key_from_outside_is_not_trusted() {
    let flaky = Flaky::new(1, 503);
    let app = flaky.router().layer(retrying());
    let mut post = request(&Method::POST);
    let key = "k1".parse().expect("a valid header");
    post.headers_mut().insert("idempotency-key", key);
    let response = app.oneshot(post).await.expect("infallible");
    assert_eq!(response.status(), 503);
    assert_eq!(flaky.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn tells_the_peer_nothing_when_it_gives_up() {
    let flaky = Flaky::new(usize::MAX, 502);
    let app = flaky.router().layer(retrying());
    let response = once(&app, &Method::GET).await;
    assert_eq!(response.status(), 503);
    let details = response.extensions().get::<Exhausted>().expect("exhausted");
    assert_eq!(details.reason(), StopReason::MaxAttempts);
    assert_eq!(details.dependency().to_string(), "handlers");
    let body = text(response).await;
    assert!(!body.contains("attempts") && body.contains("503"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_policy_can_be_for_one_route_only() {
    let (flaky, sturdy) = (Flaky::new(1, 503), Flaky::new(1, 503));
    let layer = RetryBudgetLayer::for_handlers().policy_fn(|head| {
        let search = head.uri.path().starts_with("/search");
        search.then(policy)
    });
    let app = Router::new()
        .nest("/search", flaky.router())
        .nest("/orders", sturdy.router())
        .layer(layer);
    for (path, status) in [("/search", 200), ("/orders", 503)] {
        let request = Request::get(path).body(Body::empty());
        let response = app.clone().oneshot(request.expect("a valid request")).await;
        assert_eq!(response.expect("infallible").status(), status);
    }
    assert_eq!((flaky.calls(), sturdy.calls()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn mounts_on_a_route_a_method_router_and_a_fallback() {
    let flaky = Flaky::new(2, 503);
    let (one, two) = (flaky.clone(), flaky.clone());
    let app = Router::new()
        .route(
            "/",
            get(move |body: Bytes| async move { one.answer(body) }).layer(retrying()),
        )
        .fallback(move |body: Bytes| async move { two.answer(body) });
    assert_eq!(once(&app, &Method::GET).await.status(), 200);
    let app = app.route_layer(RetryBudgetLayer::for_handlers());
    assert_eq!(once(&app, &Method::GET).await.status(), 200);
    assert_eq!(flaky.calls(), 4);
    assert_eq!(once(&app, &Method::POST).await.status(), 405);
}

#[tokio::test(start_paused = true)]
async fn time_outs_go_around_a_router_on_both_sides_of_the_layer() {
    let calls = Arc::new(AtomicUsize::new(0));
    let slow = Arc::clone(&calls);
    let handler = move || async move {
        if slow.fetch_add(1, Ordering::SeqCst) == 0 {
            std::future::pending::<()>().await;
        }
        "done"
    };
    let limit = |status, ms| TimeoutLayer::with_status_code(status, ms * MS);
    let inside = limit(StatusCode::GATEWAY_TIMEOUT, 100);
    let outside = limit(StatusCode::REQUEST_TIMEOUT, 1000);
    let router = Router::new().route("/", get(handler));
    let app = router.layer(inside).layer(retrying()).layer(outside);
    let response = once(&app, &Method::GET).await;
    assert_eq!(response.status(), 200);
    assert_eq!(text(response).await, "done");
    assert_eq!(calls.load(Ordering::SeqCst), 2);
}

/// Serves `app` on a free port until the test ends.
async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async { axum::serve(listener, app).await });
    address
}

type Plain = Client<HttpConnector, Full<Bytes>>;

async fn over_the_wire(
    client: &Plain,
    address: SocketAddr,
    method: &Method,
) -> (StatusCode, Bytes) {
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{address}/"))
        .body(Full::from("abc"))
        .expect("a valid request");
    let response = client.request(request).await.expect("a response");
    let status = response.status();
    let body = response.into_body().collect().await.expect("a whole body");
    (status, body.to_bytes())
}

#[tokio::test]
async fn retries_a_handler_behind_a_real_socket() {
    let flaky = Flaky::new(2, 503);
    let address = serve(flaky.router().layer(retrying())).await;
    let client: Plain = Client::builder(TokioExecutor::new()).build_http();
    let answer = over_the_wire(&client, address, &Method::PUT).await;
    assert_eq!(answer, (StatusCode::OK, Bytes::from("abc")));
    assert_eq!(flaky.calls(), 3);

    let flaky = Flaky::new(1, 503);
    let address = serve(flaky.router().layer(retrying())).await;
    let (status, _) = over_the_wire(&client, address, &Method::POST).await;
    assert_eq!(status, 503);
    assert_eq!(flaky.calls(), 1);
}

/// axum clones its services for every connection.
#[tokio::test]
async fn fifty_connections_share_one_budget() {
    let budget = TokenBudget::builder().cap(10).initial(10).no_trickle();
    let layer = retrying().budget(budget.build().expect("a valid budget"));
    let flaky = Flaky::new(usize::MAX, 503);
    let address = serve(flaky.router().layer(layer)).await;
    for _ in 0..50 {
        let client: Plain = Client::builder(TokioExecutor::new()).build_http();
        let (status, _) = over_the_wire(&client, address, &Method::GET).await;
        assert_eq!(status, 503);
    }
    assert_eq!(flaky.calls(), 50 + 10);
}
