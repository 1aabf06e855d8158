//! Signs each attempt, as Standard Webhooks has it: `webhook-id`, `webhook-timestamp` and
//! `webhook-signature`.
//!
//! The layer is inside of the retries, where every attempt comes by: a signature that was made for the
//! first one would be too old for the last.

use crate::clock::now_ms;
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderValue, Request};
use sha2::Sha256;
use std::task::{Context, Poll};
use tower::Service;

/// What is signed, as a request extension: the layer sees the body go by, and does not wait for it.
#[derive(Clone)]
pub(crate) struct Signed {
    pub(crate) id: HeaderValue,
    pub(crate) secret: String,
    pub(crate) body: Bytes,
}

/// The service inside, with a signature on each request that says what to sign.
#[derive(Clone)]
pub(crate) struct Sign<S>(pub(crate) S);

impl<S, B> Service<Request<B>> for Sign<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        if let Some(signed) = request.extensions().get::<Signed>().cloned() {
            let seconds = now_ms() / 1000;
            let id = signed.id.to_str().unwrap_or_default();
            let signature = signature(&signed.secret, id, seconds, &signed.body);
            let headers = request.headers_mut();
            let value = HeaderValue::from_str(&signature).expect("base64 is a header value");
            headers.insert("webhook-id", signed.id);
            headers.insert("webhook-timestamp", seconds.into());
            headers.insert("webhook-signature", value);
        }
        self.0.call(request)
    }
}

/// What a receiver compares with.
pub(crate) fn signature(secret: &str, id: &str, seconds: i64, body: &[u8]) -> String {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("any length is a key's length");
    mac.update(format!("{id}.{seconds}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}
