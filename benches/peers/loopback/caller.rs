//! The clients.

use bytes::Bytes;
use http::Request;
use http_body::Body;
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};
use std::fmt::Debug;
use tower::{Layer, Service, ServiceExt};
use tower_retry_budget::{
    RetryBudget, RetryBudgetLayer,
    body::ReplayBody,
    reqwest::{ClientExt, RequestBuilderExt, ReqwestService},
};

type Legacy<B> = Client<HttpConnector, B>;

/// Those that are compared.
#[derive(Clone)]
pub enum Caller {
    Hyper(Legacy<Full<Bytes>>),
    HyperOurs(RetryBudget<Legacy<ReplayBody<Full<Bytes>>>>),
    Reqwest(reqwest::Client),
    ReqwestOurs(reqwest::Client, RetryBudget<ReqwestService>),
    ReqwestRetry(ClientWithMiddleware),
}

pub const HYPER: &str = "hyper-util";
pub const HYPER_OURS: &str = "hyper-util, ours";
pub const REQWEST: &str = "reqwest";
pub const REQWEST_OURS: &str = "reqwest, ours";
pub const REQWEST_RETRY: &str = "reqwest-retry";

impl Caller {
    pub fn new(name: &str) -> Self {
        match name {
            HYPER => Self::Hyper(legacy()),
            HYPER_OURS => Self::HyperOurs(RetryBudgetLayer::new().layer(legacy())),
            REQWEST => Self::Reqwest(reqwest_client()),
            REQWEST_OURS => {
                let client = reqwest_client();
                let service = RetryBudgetLayer::new().layer(client.clone().into_service());
                Self::ReqwestOurs(client, service)
            }
            _ => {
                let policy = ExponentialBackoff::builder().build_with_max_retries(2);
                let retry = RetryTransientMiddleware::new_with_policy(policy);
                Self::ReqwestRetry(ClientBuilder::new(reqwest_client()).with(retry).build())
            }
        }
    }

    /// Sends a request, and reads its answer to the end.
    pub async fn send(&mut self, uri: &str) {
        match self {
            Self::Hyper(client) => send(client, uri).await,
            Self::HyperOurs(client) => send(client, uri).await,
            Self::Reqwest(client) => read(client.get(uri).send().await).await,
            Self::ReqwestOurs(client, service) => {
                read(client.get(uri).send_with(&*service).await).await;
            }
            Self::ReqwestRetry(client) => read(client.get(uri).send().await).await,
        }
    }
}

fn legacy<B: Body<Data: Send> + Send>() -> Legacy<B> {
    Client::builder(TokioExecutor::new()).build_http()
}

fn reqwest_client() -> reqwest::Client {
    let client = reqwest::Client::builder().retry(reqwest::retry::never());
    client.build().expect("a client")
}

async fn send<S, R>(service: &mut S, uri: &str)
where
    S: Service<Request<Full<Bytes>>, Response = http::Response<R>, Error: Debug>,
    R: Body<Error: Debug>,
{
    let request = Request::get(uri).body(Full::default());
    let service = service.ready().await.expect("ready");
    let response = service.call(request.expect("a valid request")).await;
    let body = response.expect("an answer").into_body().collect().await;
    body.expect("a body");
}

async fn read<E: Debug>(response: Result<reqwest::Response, E>) {
    let body = response.expect("an answer").bytes().await;
    body.expect("a body");
}
