//! Any bytes as `x-retry-exhausted` of a `502`: no panic, and a call is sent either once, since the
//! layer below gave up for good, or as often as ever.
//!
//! Each line is a line of the header.

#![no_main]

use http::{HeaderValue, Request, Response};
use libfuzzer_sys::fuzz_target;
use std::{
    cell::Cell,
    convert::Infallible,
    future::{Ready, ready},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};
use tower_layer::Layer;
use tower_retry_budget::{
    RetryBudgetLayer, RetryPolicy, body::ReplayBody, deadline::RETRY_EXHAUSTED, policy::Backoff,
    reason::StopReason,
};
use tower_service::Service;

#[derive(Clone)]
struct Below {
    lines: Rc<Vec<HeaderValue>>,
    sent: Rc<Cell<u32>>,
}

type Body = http_body_util::Empty<bytes::Bytes>;

impl Service<Request<ReplayBody<Body>>> for Below {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<ReplayBody<Body>>) -> Self::Future {
        self.sent.set(self.sent.get() + 1);
        let mut response = Response::new(Body::new());
        *response.status_mut() = http::StatusCode::BAD_GATEWAY;
        for line in self.lines.iter() {
            response.headers_mut().append(RETRY_EXHAUSTED, line.clone());
        }
        ready(Ok(response))
    }
}

fuzz_target!(|data: &[u8]| {
    let lines = data.split(|&byte| byte == b'\n');
    let lines: Vec<_> = lines.flat_map(HeaderValue::from_bytes).collect();
    // A reason that forbids a retry has to be there by name.
    let may_forbid = lines.iter().any(|line| {
        let mut reasons = StopReason::ALL.iter();
        let line = line.as_bytes();
        reasons.any(|reason| {
            let name = reason.as_str().as_bytes();
            reason.forbids_retry_above() && line.windows(name.len()).any(|part| part == name)
        })
    });

    let below = Below {
        lines: Rc::new(lines),
        sent: Rc::default(),
    };
    let policy = RetryPolicy::builder()
        .max_attempts(2)
        .backoff(Backoff::fixed(Duration::ZERO))
        .build()
        .expect("a valid policy");
    let mut service = RetryBudgetLayer::new().policy(policy).layer(below.clone());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime");
    let request = Request::new(Body::new());
    let response = runtime.block_on(async { service.call(request).await });
    assert!(response.expect("a response").status().is_server_error());
    match below.sent.get() {
        1 => assert!(may_forbid),
        sent => assert_eq!(sent, 2),
    }
});
