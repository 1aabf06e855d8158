use super::into_reqwest_response;
use crate::policy::RetryPolicy;
use http::{Request, Response};
use pin_project_lite::pin_project;
use reqwest::{Body, RequestBuilder, Url};
use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tower_service::Service;

/// Sends a [`reqwest::RequestBuilder`] through a service.
///
/// The service sends with the client inside of it. The builder's own client has done its part when the
/// builder was made; it need not be the same.
pub trait RequestBuilderExt: Sized {
    /// Adds an extension, such as a [`Deadline`](crate::Deadline), for what the request passes through.
    fn extension<T: Clone + Send + Sync + 'static>(self, value: T) -> RetryRequest;

    /// Sets the policy of this request, in place of the layer's.
    fn policy(self, policy: RetryPolicy) -> RetryRequest {
        self.extension(policy)
    }

    /// Sends the request through a clone of the service, once that is ready.
    ///
    /// The service is usually a [`RetryBudget`](crate::RetryBudget) around a
    /// [`ReqwestService`](super::ReqwestService). Any stack will do whose responses' bodies can become
    /// [`reqwest::Body`], and whose errors are reqwest's or can be made of them, as boxed errors can.
    fn send_with<S, R>(self, service: &S) -> SendWith<S>
    where
        S: Service<Request<Body>, Response = Response<R>> + Clone,
        S::Error: From<reqwest::Error>,
        R: Into<Body>;
}

impl RequestBuilderExt for RequestBuilder {
    fn extension<T: Clone + Send + Sync + 'static>(self, value: T) -> RetryRequest {
        RetryRequest::from(self).extension(value)
    }

    fn send_with<S, R>(self, service: &S) -> SendWith<S>
    where
        S: Service<Request<Body>, Response = Response<R>> + Clone,
        S::Error: From<reqwest::Error>,
        R: Into<Body>,
    {
        RetryRequest::from(self).send_with(service)
    }
}

/// A request with what is meant for the layer, ready to be sent.
///
/// Made by [`RequestBuilderExt`], or from a [`reqwest::Request`]. Whatever was wrong with the builder
/// comes out when it is sent.
#[must_use = "a request does nothing until it is sent"]
#[derive(Debug)]
pub struct RetryRequest {
    prepared: Result<Prepared, reqwest::Error>,
}

#[derive(Debug)]
struct Prepared {
    request: Request<Body>,
    url: Url,
}

impl RetryRequest {
    /// Adds an extension, such as a [`Deadline`](crate::Deadline), for what the request passes through.
    pub fn extension<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        if let Ok(prepared) = &mut self.prepared {
            prepared.request.extensions_mut().insert(value);
        }
        self
    }

    /// Sets the policy of this request, in place of the layer's.
    pub fn policy(self, policy: RetryPolicy) -> Self {
        self.extension(policy)
    }

    /// Sends the request; see [`RequestBuilderExt::send_with`].
    pub fn send_with<S, R>(self, service: &S) -> SendWith<S>
    where
        S: Service<Request<Body>, Response = Response<R>> + Clone,
        S::Error: From<reqwest::Error>,
        R: Into<Body>,
    {
        let state = match self.prepared {
            Ok(prepared) => State::Ready {
                service: service.clone(),
                prepared: Some(prepared),
            },
            Err(error) => State::Refused { error: Some(error) },
        };
        SendWith { state }
    }
}

impl From<reqwest::Request> for RetryRequest {
    fn from(request: reqwest::Request) -> Self {
        let url = request.url().clone();
        let request = Request::try_from(request);
        let prepared = request.map(|request| Prepared { request, url });
        Self { prepared }
    }
}

impl From<RequestBuilder> for RetryRequest {
    fn from(builder: RequestBuilder) -> Self {
        match builder.build() {
            Ok(request) => request.into(),
            Err(error) => Self {
                prepared: Err(error),
            },
        }
    }
}

pin_project! {
    /// The future of [`send_with`](RequestBuilderExt::send_with): the response, or the service's error.
    ///
    /// # Cancel safety
    ///
    /// Dropping it drops the call.
    ///
    /// # Panics
    ///
    /// When it is polled after it has completed.
    #[must_use = "futures do nothing unless polled"]
    pub struct SendWith<S>
    where
        S: Service<Request<Body>>,
    {
        #[pin]
        state: State<S, S::Future>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F> {
        // The service is getting ready.
        Ready { service: S, prepared: Option<Prepared> },
        Sent { #[pin] future: F, url: Url },
        // The builder made no request.
        Refused { error: Option<reqwest::Error> },
        Done,
    }
}

impl<S, R> Future for SendWith<S>
where
    S: Service<Request<Body>, Response = Response<R>>,
    S::Error: From<reqwest::Error>,
    R: Into<Body>,
{
    type Output = Result<reqwest::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let answer = match state.as_mut().project() {
                StateProj::Ready { service, prepared } => match ready!(service.poll_ready(cx)) {
                    Ok(()) => {
                        let Prepared { request, url } = prepared.take().expect("sent once");
                        let future = service.call(request);
                        state.set(State::Sent { future, url });
                        continue;
                    }
                    Err(error) => Err(error),
                },
                StateProj::Sent { future, url } => {
                    ready!(future.poll(cx)).map(|response| into_reqwest_response(response, url))
                }
                StateProj::Refused { error } => Err(error.take().expect("told once").into()),
                StateProj::Done => panic!("polled after completion"),
            };
            state.set(State::Done);
            return Poll::Ready(answer);
        }
    }
}

impl<S> fmt::Debug for SendWith<S>
where
    S: Service<Request<Body>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendWith").finish_non_exhaustive()
    }
}
