//! Two endpoints on loopback that can be broken, in every way that endpoints break.

use crate::{sign::signature, store::Failure};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use http::Uri;
use serde::{Deserialize, Serialize};
use std::{
    future::pending,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::net::TcpListener;

/// What an endpoint does with a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Behaviour {
    /// Takes it.
    #[default]
    Well,
    /// Answers 500.
    Fails,
    /// Never answers.
    Hangs,
    /// Answers 429 and asks for 3 s.
    Throttles,
    /// Answers 410: it is not there any more.
    Gone,
}

/// One endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Breakable(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    behaviour: Mutex<Behaviour>,
    secret: String,
    attempts: AtomicU64,
    forged: AtomicU64,
}

impl Breakable {
    /// Listens, and says where.
    pub(crate) async fn start(secret: &str) -> Result<(Self, Uri), Failure> {
        let endpoint = Self(Arc::new(Inner {
            behaviour: Mutex::default(),
            secret: secret.to_owned(),
            attempts: AtomicU64::new(0),
            forged: AtomicU64::new(0),
        }));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/hook", listener.local_addr()?).parse()?;
        let app = Router::new()
            .route("/hook", post(receive))
            .with_state(endpoint.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok((endpoint, url))
    }

    pub(crate) fn set(&self, behaviour: Behaviour) {
        *self
            .0
            .behaviour
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = behaviour;
    }

    pub(crate) fn behaviour(&self) -> Behaviour {
        *self
            .0
            .behaviour
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How many attempts came, and how many of them were not signed as they should be.
    pub(crate) fn came(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.0.attempts), of(&self.0.forged))
    }
}

async fn receive(State(to): State<Breakable>, headers: HeaderMap, body: Bytes) -> Response {
    to.0.attempts.fetch_add(1, Ordering::Relaxed);
    if !is_signed(&headers, &body, &to.0.secret) {
        to.0.forged.fetch_add(1, Ordering::Relaxed);
        return StatusCode::UNAUTHORIZED.into_response();
    }
    match to.behaviour() {
        Behaviour::Well => StatusCode::NO_CONTENT.into_response(),
        Behaviour::Fails => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        Behaviour::Hangs => pending().await,
        Behaviour::Throttles => {
            (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "3")]).into_response()
        }
        Behaviour::Gone => StatusCode::GONE.into_response(),
    }
}

/// Whether a delivery is signed with this secret.
pub(crate) fn is_signed(headers: &HeaderMap, body: &[u8], secret: &str) -> bool {
    let header = |name| headers.get(name)?.to_str().ok();
    let signed = || {
        let seconds: i64 = header("webhook-timestamp")?.parse().ok()?;
        let expected = signature(secret, header("webhook-id")?, seconds, body);
        Some(header("webhook-signature")? == expected)
    };
    signed().unwrap_or(false)
}
