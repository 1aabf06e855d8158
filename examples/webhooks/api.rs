//! What the dispatcher offers over HTTP.
//!
//! | | |
//! |---|---|
//! | `POST /events` | takes `{"endpoint", "class", "data"}`, and `"id"` if the sender has one: 202 once it is kept |
//! | `GET /events/{id}` | what became of one |
//! | `GET /dead-letters` | the latest hundred, with the record of each |
//! | `POST /dead-letters/{id}/replay` | delivers one anew, with the same id |
//! | `POST /endpoints/{name}/replay` | delivers all of an endpoint anew, and lifts its quarantine |
//! | `POST /endpoints/{name}/behaviour/{behaviour}` | breaks an endpoint of the example's own |
//! | `GET /status` | what the page shows |
//! | `GET /` | the page |

use crate::{
    breakable::{Behaviour, Breakable},
    clock::now_ms,
    deliver::Dispatcher,
    store::{Counts, Delivery, Failure, Known, Replay},
};
use axum::{
    Json, Router,
    extract::{Path, State, rejection::JsonRejection},
    http::StatusCode,
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc};
use tower_retry_budget::RetryState;
use uuid::Uuid;

#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) dispatcher: Arc<Dispatcher>,
    pub(crate) breakable: BTreeMap<String, Breakable>,
}

pub(crate) fn router(api: Api) -> Router {
    Router::new()
        .route("/", get(async || Html(include_str!("page.html"))))
        .route("/status", get(status))
        .route("/events", post(accept))
        .route("/events/{id}", get(event))
        .route("/dead-letters", get(dead_letters))
        .route("/dead-letters/{id}/replay", post(replay_one))
        .route("/endpoints/{name}/replay", post(replay_all))
        .route("/endpoints/{name}/behaviour/{behaviour}", post(behave))
        .with_state(api)
}

/// Why a request was not done.
pub(crate) struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(json!({ "error": self.1 }))).into_response()
    }
}

impl From<Failure> for Refused {
    fn from(error: Failure) -> Self {
        Self(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

fn not_found(what: &str, name: &str) -> Refused {
    Refused(
        StatusCode::NOT_FOUND,
        format!("there is no {what} `{name}`"),
    )
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    endpoint: String,
    class: String,
    id: Option<String>,
    data: Value,
}

/// The longest id of a sender's own.
const LONGEST_ID: usize = 128;

async fn accept(
    State(api): State<Api>,
    event: Result<Json<Event>, JsonRejection>,
) -> Result<Response, Refused> {
    let Json(event) = event.map_err(|error| Refused(error.status(), error.body_text()))?;
    if !api.dispatcher.endpoints.contains_key(&event.endpoint) {
        return Err(not_found("endpoint", &event.endpoint));
    }
    if !api.dispatcher.classes.contains_key(&event.class) {
        return Err(not_found("class", &event.class));
    }
    let id = event
        .id
        .unwrap_or_else(|| format!("evt_{}", Uuid::new_v4().simple()));
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    if id.is_empty() || id.len() > LONGEST_ID || !id.bytes().all(is_plain) {
        let error = format!("an id is 1 to {LONGEST_ID} letters, digits, `-`, `_` and `.`");
        return Err(Refused(StatusCode::UNPROCESSABLE_ENTITY, error));
    }
    let delivery = Delivery {
        id: id.clone(),
        endpoint: event.endpoint,
        class: event.class,
        body: json!({ "id": id, "data": event.data }).to_string(),
        state: RetryState::new(),
    };
    let new = api.dispatcher.store.accept(delivery).await?;
    api.dispatcher.look();
    let answer = json!({ "id": id, "new": new });
    Ok((StatusCode::ACCEPTED, Json(answer)).into_response())
}

async fn event(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Known>, Refused> {
    let found = api.dispatcher.store.find(id.clone()).await?;
    found.map(Json).ok_or_else(|| not_found("event", &id))
}

async fn dead_letters(State(api): State<Api>) -> Result<Json<Vec<Known>>, Refused> {
    Ok(Json(api.dispatcher.store.dead(100).await?))
}

async fn replay_one(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<Value>, Refused> {
    match replay(&api, Replay::One(id.clone())).await? {
        0 => Err(not_found("dead letter", &id)),
        replayed => Ok(Json(json!({ "replayed": replayed }))),
    }
}

async fn replay_all(
    State(api): State<Api>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Refused> {
    if !api.dispatcher.endpoints.contains_key(&name) {
        return Err(not_found("endpoint", &name));
    }
    let replayed = replay(&api, Replay::Endpoint(name)).await?;
    Ok(Json(json!({ "replayed": replayed })))
}

async fn replay(api: &Api, which: Replay) -> Result<usize, Refused> {
    let replayed = api.dispatcher.store.replay(which).await?;
    api.dispatcher.look();
    Ok(replayed)
}

async fn behave(
    State(api): State<Api>,
    Path((name, behaviour)): Path<(String, Behaviour)>,
) -> Result<StatusCode, Refused> {
    let endpoint = api.breakable.get(&name);
    endpoint
        .ok_or_else(|| not_found("endpoint of its own", &name))?
        .set(behaviour);
    Ok(StatusCode::NO_CONTENT)
}

/// What the page shows.
#[derive(Serialize)]
pub(crate) struct Status {
    pub(crate) now_ms: i64,
    pub(crate) endpoints: Vec<EndpointStatus>,
    pub(crate) dead_letters: Vec<Known>,
}

#[derive(Serialize)]
pub(crate) struct EndpointStatus {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) counts: Counts,
    pub(crate) in_flight: usize,
    pub(crate) balance: f64,
    pub(crate) cap: f64,
    pub(crate) denied: u64,
    /// Of an endpoint of the example's own.
    pub(crate) behaviour: Option<Behaviour>,
}

async fn status(State(api): State<Api>) -> Result<Json<Status>, Refused> {
    Ok(Json(api.status().await?))
}

/// How many dead letters the page shows.
const SHOWN: u32 = 10;

impl Api {
    pub(crate) async fn status(&self) -> Result<Status, Failure> {
        let mut counts = self.dispatcher.store.counts().await?;
        let endpoints = self.dispatcher.endpoints.keys().map(|name| {
            let account = self.dispatcher.account(name);
            EndpointStatus {
                counts: counts.remove(name).unwrap_or_default(),
                in_flight: self.dispatcher.in_flight(name),
                balance: account.balance(),
                cap: account.cap(),
                denied: account.denied(),
                behaviour: self.breakable.get(name).map(Breakable::behaviour),
                name: name.clone(),
            }
        });
        Ok(Status {
            now_ms: now_ms(),
            endpoints: endpoints.collect(),
            dead_letters: self.dispatcher.store.dead(SHOWN).await?,
        })
    }
}
