//! A server on loopback that answers by a script and writes down what it got.

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    response::Response,
};
use http::{HeaderMap, Method};
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{net::TcpListener, time::Instant};

pub(crate) struct Server {
    url: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    replies: Mutex<VecDeque<Reply>>,
    seen: Mutex<Vec<Seen>>,
}

#[derive(Default)]
pub(crate) struct Reply {
    status: u16,
    header: Option<(&'static str, String)>,
    after: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) at: Instant,
}

impl Reply {
    pub(crate) fn with(status: u16, name: &'static str, value: &str) -> Self {
        Self {
            header: Some((name, value.to_owned())),
            ..status.into()
        }
    }

    pub(crate) fn after(after: Duration) -> Self {
        Self {
            after,
            ..200.into()
        }
    }
}

impl From<u16> for Reply {
    fn from(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.get(name)?;
        Some(value.to_str().expect("a readable header"))
    }
}

impl Server {
    /// Answers with these, one after the other, and with 200 afterwards.
    pub(crate) async fn new<R: Into<Reply>>(replies: impl IntoIterator<Item = R>) -> Self {
        let shared = Arc::new(Shared::default());
        lock(&shared.replies).extend(replies.into_iter().map(Into::into));
        let app = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&shared));
        let url = serve(app).await;
        Self { url, shared }
    }

    /// Always answers with this status.
    pub(crate) async fn always(status: u16) -> Self {
        Self::new([status; 64]).await
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.shared.seen).len()
    }

    /// This header of each request.
    pub(crate) fn headers(&self, name: &str) -> Vec<Option<String>> {
        let seen = self.seen();
        let values = seen.iter().map(|seen| seen.header(name));
        values.map(|value| value.map(str::to_owned)).collect()
    }
}

pub(crate) async fn serve(app: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// A URL that nobody listens on.
pub(crate) async fn closed() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    format!("http://{address}/")
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let at = Instant::now();
    let (head, body) = request.into_parts();
    // A body that breaks off is seen as far as it came.
    let body = axum::body::to_bytes(body, usize::MAX).await;
    lock(&shared.seen).push(Seen {
        method: head.method,
        path: head.uri.path().to_owned(),
        headers: head.headers,
        body: body.unwrap_or_default(),
        at,
    });
    let reply = lock(&shared.replies).pop_front();
    let reply = reply.unwrap_or_else(|| 200.into());
    tokio::time::sleep(reply.after).await;
    let mut response = Response::builder().status(reply.status);
    if let Some((name, value)) = reply.header {
        response = response.header(name, value);
    }
    response.body(Body::from("hello")).expect("a response")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no test panics while it holds a lock")
}
