//! A server that misbehaves on purpose, and writes down what reaches it.

use axum::{
    Router,
    body::Bytes,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpListener, time::Instant};

/// One request as it reached the server.
#[derive(Clone)]
pub struct Seen {
    pub path: String,
    pub at: Instant,
    pub answered: u16,
    pub attempt: Option<String>,
    pub remaining: Option<String>,
    pub body: Bytes,
}

#[derive(Clone, Default)]
pub struct Server {
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// Serves on a free port of the loopback interface.
    pub async fn start() -> std::io::Result<(Self, SocketAddr)> {
        let server = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let app = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok((server, address))
    }

    /// What reached `path`, in order.
    pub fn seen(&self, path: &str) -> Vec<Seen> {
        let seen = self.seen.lock().expect("no handler panics");
        seen.iter()
            .filter(|seen| seen.path == path)
            .cloned()
            .collect()
    }
}

async fn answer(State(server): State<Server>, uri: Uri, request: Request) -> Response {
    let at = Instant::now();
    let (head, body) = request.into_parts();
    let body = match body.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    let path = uri.path().to_owned();
    let first = server.seen(&path).is_empty();
    let (status, headers) = script(&path, first);
    if path == "/slow" {
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    let read = |name: &str| {
        let value = head.headers.get(name)?;
        value.to_str().ok().map(String::from)
    };
    server.seen.lock().expect("no handler panics").push(Seen {
        path,
        at,
        answered: status.as_u16(),
        attempt: read("x-retry-attempt"),
        remaining: read("x-deadline-remaining-ms"),
        body,
    });
    (status, headers, status.to_string()).into_response()
}

/// What the server does, by path: it fails for the first time, or always.
fn script(path: &str, first: bool) -> (StatusCode, HeaderMap) {
    let mut headers = HeaderMap::new();
    let status = match path {
        "/blip" | "/upload" | "/json" if first => StatusCode::BAD_GATEWAY,
        "/busy" if first => {
            headers.insert("retry-after", 1.into());
            StatusCode::TOO_MANY_REQUESTS
        }
        "/orders" => StatusCode::SERVICE_UNAVAILABLE,
        "/down" => StatusCode::INTERNAL_SERVER_ERROR,
        _ => StatusCode::OK,
    };
    (status, headers)
}
