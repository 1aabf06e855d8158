use super::{into_http_response, into_reqwest_request};
use crate::body::BoxError;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use reqwest::{Client, Error};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tower_service::Service;

/// A [`reqwest::Client`] as a service over [`http::Request`].
///
/// It is always ready. Its responses keep the URL that they came from, so that
/// [`reqwest::Response::from`] has it.
///
/// # Errors
///
/// Those of [`reqwest::Client::execute`]; a URI that is not absolute is a builder error.
#[derive(Clone, Debug)]
pub struct ReqwestService {
    client: Client,
}

impl ReqwestService {
    /// Creates a service that sends with this client.
    ///
    /// The client's own retries should be [off](super#reqwests-own-retries).
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client inside.
    pub fn client(&self) -> &Client {
        &self.client
    }
}

impl From<Client> for ReqwestService {
    fn from(client: Client) -> Self {
        Self::new(client)
    }
}

/// Makes a service of a [`reqwest::Client`].
pub trait ClientExt {
    /// Turns the client, or a clone of it, into a service over [`http::Request`].
    fn into_service(self) -> ReqwestService;
}

impl ClientExt for Client {
    fn into_service(self) -> ReqwestService {
        ReqwestService::new(self)
    }
}

impl<B> Service<Request<B>> for ReqwestService
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<reqwest::Body>;
    type Error = Error;
    type Future = ReqwestFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.client.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> ReqwestFuture {
        let state = match into_reqwest_request(request) {
            Ok(request) => State::Sent {
                pending: self.client.call(request),
            },
            Err(error) => State::Refused { error: Some(error) },
        };
        ReqwestFuture { state }
    }
}

pin_project! {
    /// The future of a [`ReqwestService`].
    ///
    /// # Panics
    ///
    /// When it is polled after it has completed.
    #[must_use = "futures do nothing unless polled"]
    pub struct ReqwestFuture {
        #[pin]
        state: State,
    }
}

pin_project! {
    #[project = StateProj]
    enum State {
        Sent {
            #[pin]
            pending: <Client as Service<reqwest::Request>>::Future,
        },
        // The request could not be made into one of reqwest's.
        Refused {
            error: Option<Error>,
        },
    }
}

impl Future for ReqwestFuture {
    type Output = Result<Response<reqwest::Body>, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match self.project().state.project() {
            StateProj::Sent { pending } => ready!(pending.poll(cx)).map(into_http_response),
            StateProj::Refused { error } => Err(error.take().expect("polled after completion")),
        })
    }
}

impl fmt::Debug for ReqwestFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReqwestFuture").finish_non_exhaustive()
    }
}
