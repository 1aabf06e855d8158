//! The requests that all stacks are given.

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Request, Uri,
    header::{ACCEPT, USER_AGENT},
};
use http_body::{Body, Frame};
use http_body_util::Full;
use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TENANT: HeaderName = HeaderName::from_static("x-tenant");

const HEADERS: [(HeaderName, &str); 4] = [
    (ACCEPT, "application/json"),
    (USER_AGENT, "bench/1.0"),
    (REQUEST_ID, "0af7651916cd43dd8448eb211c80319c"),
    (TENANT, "shop"),
];

const URI: &str = "http://search:8080/find?q=1";

/// A GET whose address and headers own their memory, as when they are made from what is at hand.
pub fn owned() -> Request<Full<Bytes>> {
    let mut request = Request::get(URI).body(Full::default());
    if let Ok(request) = &mut request {
        for (name, value) in HEADERS {
            let value = HeaderValue::from_str(value).expect("a valid value");
            request.headers_mut().insert(name, value);
        }
    }
    request.expect("a valid request")
}

/// A GET of constants.
pub fn fixed() -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::default());
    *request.uri_mut() = Uri::from_static(URI);
    for (name, value) in HEADERS {
        request
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    request
}

/// A PUT of 1 KiB that is in memory.
pub fn kibibyte() -> Request<Full<Bytes>> {
    put(Full::from(Bytes::from(vec![b'x'; 1024])))
}

/// A PUT of 32 KiB that comes in pieces.
pub fn streamed() -> Request<Streamed> {
    put(Streamed::default())
}

fn put<B>(body: B) -> Request<B> {
    let (mut head, _) = owned().into_parts();
    head.method = http::Method::PUT;
    Request::from_parts(head, body)
}

const PIECES: u8 = 8;
static PIECE: [u8; 4096] = [b'x'; 4096];

/// Pieces of 4 KiB, and no length.
#[derive(Default)]
pub struct Streamed(u8);

impl Body for Streamed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0 == PIECES {
            return Poll::Ready(None);
        }
        self.0 += 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PIECE)))))
    }
}
