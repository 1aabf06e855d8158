//! Endpoints that write down what comes.

use crate::{breakable::is_signed, clock::now_ms};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpListener, time::sleep};

pub(crate) const SECRET: &str = "whsec_for_tests";

/// How an endpoint answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    Well,
    /// With a success, after a while.
    After(Duration),
    Fails,
    Never,
    /// With 429 and this many seconds at first, and with a success to whoever has been told.
    Throttles(u32),
    Gone,
}

/// When attempts for each event came, in milliseconds since 1970.
pub(crate) type Came = HashMap<String, Vec<i64>>;

#[derive(Clone)]
pub(crate) struct Endpoint {
    name: &'static str,
    url: String,
    inner: Arc<Inner>,
}

struct Inner {
    answers: Answers,
    came: Mutex<Came>,
    bad: Mutex<Vec<String>>,
}

impl Endpoint {
    pub(crate) async fn start(name: &'static str, answers: Answers) -> Self {
        let inner = Arc::new(Inner {
            answers,
            came: Mutex::default(),
            bad: Mutex::default(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let app = Router::new()
            .route("/", post(receive))
            .with_state(Arc::clone(&inner));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self {
            name,
            url: format!("http://{address}/"),
            inner,
        }
    }

    pub(crate) fn arg(&self) -> String {
        format!("--endpoint={}={}", self.name, self.url)
    }

    pub(crate) fn came(&self) -> Came {
        self.inner.came.lock().expect("no panic").clone()
    }

    /// What was wrong with what came.
    pub(crate) fn bad(&self) -> Vec<String> {
        self.inner.bad.lock().expect("no panic").clone()
    }
}

impl Inner {
    /// Looks at what came, and returns its id.
    fn check(&self, headers: &HeaderMap, body: &[u8], now: i64) -> String {
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let id = header("webhook-id").unwrap_or_default().to_owned();
        let signed_at: i64 = header("webhook-timestamp")
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or_default();
        let mut bad = self.bad.lock().expect("no panic");
        if !is_signed(headers, body, SECRET) {
            bad.push(format!("{id}: not signed"));
        }
        if (now - signed_at * 1000).abs() > 5_000 {
            bad.push(format!("{id}: signed at {signed_at}, came at {now}"));
        }
        let told = ["x-deadline-remaining-ms", "x-retry-attempt"];
        if told.iter().any(|name| headers.contains_key(*name)) {
            bad.push(format!("{id}: told of deadlines"));
        }
        id
    }
}

/// The arguments for these endpoints.
pub(crate) fn args(endpoints: &[&Endpoint], more: &[&str]) -> Vec<String> {
    let mut args = vec![format!("--secret={SECRET}")];
    args.extend(endpoints.iter().map(|endpoint| endpoint.arg()));
    args.extend(more.iter().copied().map(String::from));
    args
}

async fn receive(State(to): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    let now = now_ms();
    let id = to.check(&headers, &body, now);
    let number = {
        let mut came = to.came.lock().expect("no panic");
        let attempts = came.entry(id).or_default();
        attempts.push(now);
        attempts.len()
    };
    match to.answers {
        Answers::Well => StatusCode::NO_CONTENT.into_response(),
        Answers::After(time) => {
            sleep(time).await;
            StatusCode::NO_CONTENT.into_response()
        }
        Answers::Fails => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Answers::Never => std::future::pending().await,
        Answers::Throttles(seconds) if number == 1 => {
            let told = [("retry-after", seconds.to_string())];
            (StatusCode::TOO_MANY_REQUESTS, told).into_response()
        }
        Answers::Throttles(_) => StatusCode::NO_CONTENT.into_response(),
        Answers::Gone => StatusCode::GONE.into_response(),
    }
}
