use crate::body::{BoxError, ReplayBody, ResponseBody};
use bytes::Bytes;
use http::{Extensions, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use reqwest::{ResponseBuilderExt, Url};
use std::{
    any::Any,
    mem,
    pin::Pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

/// Turns a request into one of reqwest's, as [`ReqwestService`](super::ReqwestService) does.
///
/// Extensions are kept, a reqwest time-out among them. A body in memory stays one; see
/// [the module](super#bodies). For adapters to what is built on reqwest.
///
/// # Errors
///
/// A builder error when the URI is not absolute.
pub fn into_reqwest_request<B>(request: Request<B>) -> Result<reqwest::Request, reqwest::Error>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    request.map(into_body).try_into()
}

/// Turns one of reqwest's responses into a plain one that keeps its URL for the way back.
pub fn into_http_response(response: reqwest::Response) -> Response<reqwest::Body> {
    let url = with_url(response.url().clone());
    let mut response = Response::<reqwest::Body>::from(response);
    response.extensions_mut().extend(url);
    response
}

/// Turns a response into one of reqwest's.
///
/// Its URL is the one that it came from, when it passed through
/// [`ReqwestService`](super::ReqwestService) or [`into_http_response`]. A response that was made on the
/// way, such as the layer's own `503`, gets the URL that was `requested`.
pub fn into_reqwest_response<R>(response: Response<R>, requested: &Url) -> reqwest::Response
where
    R: Into<reqwest::Body>,
{
    let (mut head, body) = response.into_parts();
    // What the response brings comes second, and replaces what stands there.
    let mut extensions = with_url(requested.clone());
    extensions.extend(head.extensions);
    head.extensions = extensions;
    Response::from_parts(head, body).into()
}

/// Extensions with nothing but the URL in them. The type that reqwest looks for is not public.
fn with_url(url: Url) -> Extensions {
    let mut response = Response::builder().url(url);
    let extensions = response.extensions_mut().map(mem::take);
    extensions.unwrap_or_default()
}

impl From<ResponseBody<reqwest::Body>> for reqwest::Body {
    fn from(body: ResponseBody<reqwest::Body>) -> Self {
        body.into_inner_or_bytes().unwrap_or_else(Self::from)
    }
}

/// Turns the body of one attempt into bytes if that is what it is, else into a stream.
fn into_body<B>(body: B) -> reqwest::Body
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Some(body);
    if let Some(body) = take::<reqwest::Body>(&mut body) {
        return body;
    }
    // By name, because nothing else tells that more than fits a buffer is in memory.
    if let Some(body) = take::<ReplayBody<reqwest::Body>>(&mut body) {
        return whole_or_stream(body);
    }
    if let Some(body) = take::<ReplayBody<Full<Bytes>>>(&mut body) {
        return whole_or_stream(body);
    }
    whole_or_stream(body.map_or_else(ReplayBody::default, ReplayBody::direct))
}

/// Takes the body out if it is a `T`.
fn take<T: 'static>(body: &mut dyn Any) -> Option<T> {
    body.downcast_mut::<Option<T>>().and_then(Option::take)
}

fn whole_or_stream<B>(mut body: ReplayBody<B>) -> reqwest::Body
where
    B: Body + Send + 'static,
    B::Error: Into<BoxError>,
{
    match body.take_whole() {
        Some(whole) => whole.into(),
        None => reqwest::Body::wrap(Shareable::new(body)),
    }
}

/// Makes any body `Sync`, which reqwest asks for, although a body is polled by one task only.
struct Shareable<B> {
    body: Mutex<Pin<Box<B>>>,
}

impl<B> Shareable<B> {
    fn new(body: B) -> Self {
        let body = Mutex::new(Box::pin(body));
        Self { body }
    }

    /// Nobody else is ever there to wait for.
    fn lock(&self) -> MutexGuard<'_, Pin<Box<B>>> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B: Body> Body for Shareable<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let body = self.body.get_mut();
        let body = body.unwrap_or_else(PoisonError::into_inner);
        body.as_mut().poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().size_hint()
    }
}
