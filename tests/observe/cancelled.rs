//! A call that is dropped says so once, whatever it was doing, after everything else.

use crate::support::{
    Body, MS, get,
    ledger::{Answer, Ledger},
    recorder::Recorder,
    script::{Readiness, Reply, Script},
    steady,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_retry_budget::RetryBudgetLayer;

/// What is told of a call that is dropped after `polls` polls, 20 ms apart.
async fn told(script: Script, answers: Vec<Answer>, endless: bool, polls: usize) -> Vec<String> {
    let recorder = Recorder::default();
    let layer = RetryBudgetLayer::new()
        .policy(steady().build().expect("a valid policy"))
        .shared_budget(Ledger::new(answers))
        .observe(recorder.clone());
    let mut service = ServiceBuilder::new()
        .layer(layer)
        .map_response(move |response: Response<Body>| response.map(|_| Download { endless }))
        .service(script);
    let call = ServiceExt::<Request<Body>>::ready(&mut service);
    let future = call.await.expect("ready").call(get());
    drive(Box::pin(future), polls).await;
    recorder.take()
}

/// A response body that is empty, or has no end.
struct Download {
    endless: bool,
}

impl http_body::Body for Download {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.endless {
            true => Poll::Pending,
            false => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        !self.endless
    }
}

async fn drive(mut future: Pin<Box<impl Future>>, polls: usize) {
    for _ in 0..polls {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(future.as_mut().poll(&mut cx).is_pending(), "it ended");
        tokio::time::advance(20 * MS).await;
    }
}

const STARTED: [&str; 2] = ["call_started", "attempt_started 1 first"];

const SCHEDULED: [&str; 5] = [
    "call_started",
    "attempt_started 1 first",
    "attempt_finished 1 failure",
    "deposited failed=true",
    "retry_scheduled server_error",
];

#[tokio::test(start_paused = true)]
async fn tells_of_a_call_that_was_never_polled() {
    let told = told(Script::always(502), vec![], false, 0).await;
    let ended = ["attempt_finished 1 cancelled", "cancelled attempt"];
    assert_eq!(told, [&STARTED[..], &ended].concat());
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_first_attempt_under_way() {
    let told = told(Script::new([Reply::Hang]), vec![], false, 3).await;
    let ended = ["attempt_finished 1 cancelled", "cancelled attempt"];
    assert_eq!(told, [&STARTED[..], &ended].concat());
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_budget_being_asked() {
    let told = told(Script::always(502), vec![Answer::Never], false, 1).await;
    let ended = ["cancelled asking"];
    assert_eq!(told, [&SCHEDULED[..4], &ended].concat());
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_response_being_drained() {
    let told = told(Script::always(502), vec![], true, 1).await;
    let ended = ["settled NotSent", "cancelled draining"];
    assert_eq!(told, [&SCHEDULED[..], &ended].concat());
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_wait() {
    let told = told(Script::always(502), vec![], false, 1).await;
    let ended = ["settled NotSent", "cancelled waiting"];
    assert_eq!(told, [&SCHEDULED[..], &ended].concat());
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_service_getting_ready() {
    let script = Script::new([502]).readiness([Readiness::Ready, Readiness::Never]);
    let told = told(script, vec![], false, 2).await;
    let ended = ["settled NotSent", "cancelled readying"];
    assert_eq!(told, [&SCHEDULED[..], &ended].concat());
}

#[tokio::test(start_paused = true)]
async fn tells_of_a_retry_under_way() {
    let script = Script::new([Reply::Status(502), Reply::Hang]);
    let told = told(script, vec![], false, 3).await;
    let ended = [
        "attempt_started 2 server_error",
        "attempt_finished 2 cancelled",
        "settled Failed",
        "cancelled attempt",
    ];
    assert_eq!(told, [&SCHEDULED[..], &ended].concat());
}

#[tokio::test(start_paused = true)]
async fn tells_nothing_more_of_a_call_that_had_ended() {
    let recorder = Recorder::default();
    let layer = RetryBudgetLayer::new().observe(recorder.clone());
    let mut service = layer.layer(Script::always(200));
    let ready = ServiceExt::<Request<Body>>::ready(&mut service);
    let mut future = Box::pin(ready.await.expect("ready").call(get()));
    future.as_mut().await.expect("a response");
    let told = recorder.take();
    assert_eq!(told.last().map(String::as_str), Some("succeeded 1"));
    drop(future);
    assert!(recorder.take().is_empty());
}
