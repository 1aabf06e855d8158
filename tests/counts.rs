//! One number of attempts and one shape of giving up, wherever one looks.

mod support;

use http::{HeaderName, HeaderValue, Request, StatusCode};
use std::{
    collections::BTreeSet,
    io::{self, ErrorKind},
    sync::Arc,
    time::{Duration, Instant},
};
use support::{
    Body, MS, SECOND, ample, exhausted, get, info, json,
    log::{self, Fields, Log},
    request,
    script::{Readiness, Reply, Script},
    send, steady, text,
};
use tower::Layer;
use tower_retry_budget::{
    Deadline, Exhausted, OnExhausted, RetryBudgetLayer, RetryInfo, RetryPolicy,
    budget::{Budget, Key, Settled, TokenBudget, Withdrawal},
    policy::{Backoff, RetryPolicyBuilder},
    reason::{Cause, Processed, SkipReason, StopReason},
};
use tracing::Level;

fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    log::install();
    fastrand::seed(1);
    let policy = policy.build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

/// A budget that refuses every retry, for this reason.
struct Refuses(StopReason);

impl Budget for Refuses {
    fn deposit(&self, _: &Key, _: bool, _: Instant) {}

    fn withdraw(self: Arc<Self>, _: &Key, _: Cause, _: Instant) -> Withdrawal {
        Withdrawal::Denied(self.0)
    }

    fn settle(&self, _: &Key, _: Settled, _: Instant) {}
}

type Answer = http::Response<tower_retry_budget::body::ResponseBody<Body>>;

/// Answers of a layer that gave up, one or more for each reason that there is.
async fn given_up() -> Vec<(StopReason, Answer)> {
    use StopReason::{
        AttemptTimeout, Budget, CircuitOpen, DeadlineReached, DeadlineTooClose, Deferred, Disabled,
        FleetBudget, MaxAttempts, Overloaded, RetryAfterTooLong, ShuttingDown,
    };
    let reset = || Reply::io(ErrorKind::ConnectionReset);
    let late = || {
        let mut call = get();
        call.extensions_mut()
            .insert(Deadline::after(Duration::ZERO));
        call
    };
    let unready = || {
        let script = Script::new([502]);
        let broken = io::Error::from(ErrorKind::BrokenPipe);
        script.readiness([Readiness::Ready, Readiness::Error(broken.into())])
    };
    let second = || layer(steady().total_timeout(SECOND));
    let cut = || layer(steady().attempt_timeout(SECOND));
    let far = steady()
        .total_timeout(SECOND)
        .backoff(Backoff::fixed(2 * SECOND));
    let long = || Script::new([Reply::retry_after(429, "86400")]);
    let always = Script::always;
    let plain = || layer(steady());
    let cases = [
        (MaxAttempts, plain(), always(502), get()),
        (MaxAttempts, plain(), always(429), get()),
        (
            MaxAttempts,
            plain(),
            Script::new([reset(), reset(), reset()]),
            get(),
        ),
        (
            MaxAttempts,
            cut(),
            Script::new([Reply::Hang, Reply::Hang, Reply::Hang]),
            get(),
        ),
        (DeadlineReached, second(), Script::new([Reply::Hang]), get()),
        (
            DeadlineReached,
            second(),
            Script::new([Reply::Hang]),
            request("POST", "abc"),
        ),
        (DeadlineReached, plain(), always(200), late()),
        (DeadlineTooClose, layer(far), always(502), get()),
        (
            AttemptTimeout,
            cut(),
            Script::new([Reply::Hang]),
            request("POST", "abc"),
        ),
        (RetryAfterTooLong, plain(), long(), get()),
        (Budget, plain().budget(Refuses(Budget)), always(502), get()),
        (
            FleetBudget,
            plain().budget(Refuses(FleetBudget)),
            always(503),
            get(),
        ),
        (
            CircuitOpen,
            plain().budget(Refuses(CircuitOpen)),
            always(500),
            get(),
        ),
        (
            ShuttingDown,
            plain().budget(Refuses(ShuttingDown)),
            always(500),
            get(),
        ),
        (
            Disabled,
            plain().budget(Refuses(Disabled)),
            always(502),
            get(),
        ),
        (
            Deferred,
            layer(steady().defer_waits_over(SECOND)),
            Script::new([Reply::retry_after(503, "7")]),
            get(),
        ),
        (Overloaded, plain().max_waiting(0), always(502), get()),
        (Overloaded, plain(), unready(), get()),
    ];
    let mut answers = Vec::new();
    for (reason, layer, script, call) in cases {
        let service = layer.layer(script);
        let answer = send(&service, call).await.expect("a response");
        assert_eq!(exhausted(&answer).reason(), reason);
        answers.push((reason, answer));
    }
    answers
}

#[tokio::test(start_paused = true)]
async fn gives_up_in_one_shape_whatever_the_reason() {
    let members = [
        "type",
        "title",
        "status",
        "detail",
        "reason",
        "dependency",
        "attempts",
        "max_attempts",
        "elapsed_ms",
        "waited_ms",
        "last_status",
        "error_type",
        "retryable",
        "processed",
        "retry_after_ms",
        "history",
    ];
    let members = members
        .map(String::from)
        .into_iter()
        .collect::<BTreeSet<_>>();
    let mut reasons = BTreeSet::new();
    for (reason, answer) in given_up().await {
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(answer.headers()["content-type"], "application/problem+json");
        let details = exhausted(&answer).clone();
        let told = answer.headers().get("retry-after").cloned();
        assert_eq!(told.is_some(), details.retry_after().is_some());
        assert_eq!(told.is_some(), details.is_retryable());
        let body = json(answer).await;
        let object = body.as_object().expect("an object");
        assert_eq!(
            object.keys().cloned().collect::<BTreeSet<_>>(),
            members,
            "{reason}"
        );
        assert_eq!(body["type"], "https://docs.rs/tower-retry-budget#exhausted");
        assert_eq!(body["title"], "Retries exhausted");
        assert_eq!(body["status"], 503);
        assert_eq!(body["detail"], details.to_string());
        assert_eq!(body["reason"], reason.as_str());
        assert_eq!(body["attempts"], details.attempts());
        assert_eq!(body["max_attempts"], 3);
        assert_eq!(body["elapsed_ms"], number(details.elapsed().as_millis()));
        assert_eq!(body["waited_ms"], number(details.waited().as_millis()));
        assert_eq!(body["retryable"], details.is_retryable());
        assert_eq!(body["processed"], details.processed().as_str());
        assert_eq!(
            body["history"].as_array().map(Vec::len),
            Some(details.history().len())
        );
        assert_eq!(
            details.history().len() as u64,
            u64::from(details.attempts())
        );
        // What the header asks for is what the body says.
        let seconds = body["retry_after_ms"]
            .as_u64()
            .map(|ms| (ms / 1000).to_string());
        let told = told.map(|told| told.to_str().expect("text").to_owned());
        assert_eq!(seconds, told);
        reasons.insert(reason.as_str());
    }
    assert_eq!(reasons.len(), StopReason::ALL.len(), "{reasons:?}");
}

fn number(number: u128) -> u64 {
    u64::try_from(number).expect("a small number")
}

#[tokio::test(start_paused = true)]
async fn keeps_the_whole_time_apart_into_attempts_and_waits() {
    for (reason, answer) in given_up().await {
        let details = exhausted(&answer);
        let parts: Duration = details
            .history()
            .map(|one| one.elapsed() + one.wait())
            .sum();
        assert_eq!(parts, details.elapsed(), "{reason}");
        let waits: Duration = details.history().map(|one| one.wait()).sum();
        assert_eq!(waits, details.waited(), "{reason}");
        assert!(
            details
                .history()
                .map(|one| one.attempt())
                .eq(1..=details.attempts())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn says_the_same_numbers_in_the_policy_the_header_the_answer_and_the_log() {
    for max in [2, 3, 5] {
        let policy = steady().max_attempts(max).build().expect("a valid policy");
        assert_eq!(policy.max_attempts(), max);
        let log = Log::listen();
        let script = Script::always(502);
        let service = layer(policy.to_builder()).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        let sent = script.seen();
        assert_eq!(sent.len(), max as usize);
        for (seen, number) in sent.iter().zip(1..) {
            let header = format!("{number};max={max}");
            assert_eq!(seen.header("x-retry-attempt"), Some(&*header));
        }
        let details = exhausted(&response).clone();
        assert_eq!((details.attempts(), details.max_attempts()), (max, max));
        assert_eq!(info(&response).attempts, max);
        let body = json(response).await;
        assert_eq!(
            (&body["attempts"], &body["max_attempts"]),
            (&max.into(), &max.into())
        );
        let stops = log.events("retries exhausted");
        assert_eq!(stops[0]["attempts"], max.to_string());
        assert_eq!(stops[0]["max_attempts"], max.to_string());
        assert_eq!(log.spans()[0]["max_attempts"], max.to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn sends_once_when_one_attempt_is_allowed_and_refuses_none() {
    let script = Script::always(503);
    let service = layer(steady().max_attempts(1)).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(text(response).await, "status 503");
    assert_eq!(script.count(), 1);
    let none = RetryPolicy::builder().max_attempts(0).build();
    assert_eq!(
        none.expect_err("no attempt is no call").setting,
        "max_attempts"
    );
}

#[tokio::test(start_paused = true)]
async fn ends_at_the_limit_whatever_kind_of_failure_it_is() {
    let kinds = [
        ErrorKind::ConnectionRefused,
        ErrorKind::ConnectionReset,
        ErrorKind::BrokenPipe,
        ErrorKind::UnexpectedEof,
        ErrorKind::TimedOut,
    ];
    for kind in kinds {
        let script = Script::new((0..100).map(|_| Reply::io(kind)));
        let service = layer(steady().max_attempts(4)).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
        assert_eq!(script.count(), 4, "{kind:?}");
    }
    for status in [408, 425, 429, 500, 502, 503, 504] {
        let script = Script::always(status);
        let service = layer(steady().max_attempts(4)).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(
            exhausted(&response).last_status().map(|last| last.as_u16()),
            Some(status)
        );
        assert_eq!(script.count(), 4, "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn tells_the_last_status_and_the_last_error() {
    let reset = || Reply::io(ErrorKind::ConnectionReset);
    let script = Script::new([reset(), 500.into(), 502.into()]);
    let service = layer(steady()).layer(script);
    let response = send(&service, get()).await.expect("a response");
    let details = exhausted(&response);
    assert_eq!(details.last_status(), Some(StatusCode::BAD_GATEWAY));
    assert!(details.error().is_none() && details.error_type().is_none());
    let statuses: Vec<_> = details.history().map(|one| one.status()).collect();
    let [internal, gateway] = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::BAD_GATEWAY];
    assert_eq!(statuses, [None, Some(internal), Some(gateway)]);

    let script = Script::new([500.into(), 502.into(), reset()]);
    let service = layer(steady()).layer(script);
    let response = send(&service, get()).await.expect("a response");
    let details = exhausted(&response);
    assert_eq!(details.last_status(), None);
    let error = details.error().expect("a known error");
    let error = error.downcast_ref::<io::Error>().expect("the error itself");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let name = details.error_type().expect("a name").to_owned();
    let body = json(response).await;
    assert_eq!(body["last_status"], serde_json::Value::Null);
    assert_eq!(body["error_type"], *name);
    assert_eq!(body["history"][2]["error_type"], *name);
}

#[tokio::test(start_paused = true)]
async fn says_whether_anything_was_processed() {
    let refused = || Reply::io(ErrorKind::ConnectionRefused);
    let service = layer(steady()).layer(Script::new([refused(), refused(), refused()]));
    let response = send(&service, request("POST", "abc")).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).processed(), Processed::No);
    assert!(exhausted(&response).is_retryable());
    assert!(response.headers().contains_key("retry-after"));
    // Once in doubt, always in doubt.
    let service = layer(steady()).layer(Script::new([500.into(), refused(), refused()]));
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).processed(), Processed::Unknown);
    assert!(exhausted(&response).is_retryable());
}

#[tokio::test(start_paused = true)]
async fn asks_the_caller_to_wait_longer_the_more_attempts_failed() {
    for (max, longest) in [(2, 4), (3, 8), (5, 32), (9, 60), (40, 60)] {
        let policy = steady().max_attempts(max).backoff(Backoff::none());
        let service = layer(policy).layer(Script::always(500));
        for _ in 0..20 {
            let response = send(&service, get()).await.expect("a response");
            let told = response.headers()["retry-after"].to_str();
            let told: u64 = told.expect("text").parse().expect("seconds");
            assert!(
                (longest / 2..=longest).contains(&told),
                "{told} after {max}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn remembers_the_latest_attempts_of_a_long_call() {
    let policy = steady().max_attempts(40).total_timeout(None);
    let script = Script::new((0..40).map(|n| Reply::Status(if n == 24 { 500 } else { 502 })));
    let service = layer(policy).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    let details = exhausted(&response);
    assert_eq!((details.attempts(), script.count()), (40, 40));
    assert_eq!(details.waited(), 390 * MS);
    let kept: Vec<_> = details.history().map(|one| one.attempt()).collect();
    assert_eq!(kept, (25..=40).collect::<Vec<_>>());
    let body = json(response).await;
    let history = body["history"].as_array().expect("an array");
    assert_eq!(history.len(), 16);
    assert_eq!(
        (&history[0]["attempt"], &history[0]["status"]),
        (&25.into(), &500.into())
    );
    assert_eq!(
        (&history[15]["attempt"], &history[15]["wait_ms"]),
        (&40.into(), &0.into())
    );
    assert_eq!(body["attempts"], 40);
}

#[tokio::test(start_paused = true)]
async fn gives_a_head_request_no_body_and_all_the_headers() {
    for answer in [OnExhausted::Respond, OnExhausted::Terse] {
        let service = layer(steady().on_exhausted(answer)).layer(Script::always(502));
        let response = send(&service, request("HEAD", "")).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 503);
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert!(response.headers().contains_key("retry-after"));
        assert_eq!(exhausted(&response).attempts(), 3);
        assert!(response.body().is_own());
        assert_eq!(text(response).await, "");
    }
}

#[tokio::test(start_paused = true)]
async fn tells_a_stranger_nothing_and_the_process_everything() {
    let policy = steady().on_exhausted(OnExhausted::Terse);
    let policy = policy.instance_header(HeaderName::from_static("x-request-id"));
    let log = Log::listen();
    let service = layer(policy).layer(Script::always(502));
    let mut call = get();
    let id = HeaderValue::from_static("r-17");
    call.headers_mut().insert("x-request-id", id);
    let response = send(&service, call).await.expect("a response");
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    let details = exhausted(&response).clone();
    assert_eq!(details.reason(), StopReason::MaxAttempts);
    assert_eq!(details.history().len(), 3);
    assert_eq!(details.instance(), Some("r-17"));
    assert_eq!(log.events("retries exhausted")[0]["reason"], "max_attempts");
    let said = text(response).await;
    assert_eq!(
        said,
        r#"{"type":"about:blank","title":"Service Unavailable","status":503}"#
    );
}

#[tokio::test(start_paused = true)]
async fn names_the_request_by_a_header_or_by_a_function() {
    struct Id(u32);

    let instance = async |policy: RetryPolicyBuilder, call: Request<Body>| {
        let service = layer(policy).layer(Script::always(502));
        let response = send(&service, call).await.expect("a response");
        let typed = exhausted(&response).instance().map(str::to_owned);
        let body = json(response).await;
        assert_eq!(
            body.get("instance").and_then(|told| told.as_str()),
            typed.as_deref()
        );
        typed
    };
    let named = || {
        let mut call = get();
        let id = HeaderValue::from_static("r-17");
        call.headers_mut().insert("x-request-id", id);
        call.extensions_mut().insert(Arc::new(Id(9)));
        call
    };
    let by_header = || steady().instance_header(HeaderName::from_static("x-request-id"));
    let by_fn = steady().instance_fn(|head| {
        let id = head.extensions.get::<Arc<Id>>()?;
        Some(format!("/calls/{}", id.0))
    });
    assert_eq!(
        instance(by_header(), named()).await.as_deref(),
        Some("r-17")
    );
    assert_eq!(instance(by_fn, named()).await.as_deref(), Some("/calls/9"));
    assert_eq!(instance(by_header(), get()).await, None);
    assert_eq!(instance(steady(), named()).await, None);
    // What is no text is no id.
    let mut odd = get();
    let bytes = HeaderValue::from_bytes(b"r\xff").expect("a possible value");
    odd.headers_mut().insert("x-request-id", bytes);
    assert_eq!(instance(by_header(), odd).await, None);
}

#[tokio::test(start_paused = true)]
async fn counts_what_succeeded_in_the_end_and_what_was_not_retried() {
    let service = layer(steady()).layer(Script::new([502, 500]));
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(info(&response).attempts, 3);
    assert_eq!(info(&response).waited, 20 * MS);
    assert_eq!(info(&response).skipped, None);
    assert!(response.extensions().get::<Exhausted>().is_none());

    let service = layer(steady()).layer(Script::new([502, 404]));
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 404);
    assert_eq!(info(&response).attempts, 2);
    assert_eq!(info(&response).skipped, Some(SkipReason::FinalAnswer));

    let service = layer(steady()).layer(Script::always(500));
    let response = send(&service, request("POST", "abc")).await;
    let response = response.expect("a response");
    assert_eq!(info(&response).attempts, 1);
    assert_eq!(info(&response).skipped, Some(SkipReason::NotIdempotent));

    let service = layer(steady().max_attempts(1)).layer(Script::always(500));
    let response = send(&service, get()).await.expect("a response");
    assert!(response.extensions().get::<RetryInfo>().is_none());
}

/// What must never be logged, wherever a call and its answer carry it.
const SECRET: &str = "hush";

fn carrying_secrets(method: &str) -> Request<Body> {
    let call = Request::builder()
        .method(method)
        .uri(format!(
            "http://user:{SECRET}@search:8080/find/{SECRET}?q={SECRET}"
        ))
        .header("authorization", SECRET)
        .header("idempotency-key", SECRET)
        .body(Body::from(SECRET));
    call.expect("a valid request")
}

fn answering_secrets(status: u16, retry_after: &str) -> Reply {
    let response = http::Response::builder()
        .status(status)
        .header("set-cookie", SECRET)
        .header("retry-after", retry_after)
        .header("ratelimit", SECRET)
        .body(Body::from(SECRET));
    Reply::Response(response.expect("a valid response"))
}

fn names(fields: &Fields) -> Vec<&str> {
    fields.keys().map(String::as_str).collect()
}

#[tokio::test(start_paused = true)]
async fn logs_one_event_for_each_retry_and_each_stop() {
    let log = Log::listen();
    let replies = [
        answering_secrets(429, "1"),
        answering_secrets(502, SECRET),
        Reply::io(ErrorKind::ConnectionReset),
    ];
    let policy = steady().total_timeout(10 * SECOND);
    let service = layer(policy).layer(Script::new(replies));
    let response = send(&service, carrying_secrets("POST")).await;
    exhausted(&response.expect("a response"));

    let messages = log.messages();
    let expected = [
        (Level::DEBUG, "retry scheduled"),
        (Level::DEBUG, "malformed Retry-After: own back-off applies"),
        (Level::DEBUG, "retry scheduled"),
        (Level::INFO, "retries exhausted"),
    ];
    assert_eq!(
        messages,
        expected.map(|(level, text)| (level, text.to_owned()))
    );
    assert!(!log.everything().contains(SECRET), "{}", log.everything());

    let retries = log.events("retry scheduled");
    let hinted = [
        "attempt",
        "cause",
        "dependency",
        "message",
        "remaining_ms",
        "retry_after_ms",
    ];
    assert_eq!(
        names(&retries[0]),
        [&hinted[..], &["status", "wait_ms"]].concat()
    );
    assert_eq!(retries[0]["attempt"], "1");
    assert_eq!(retries[0]["cause"], "throttled");
    assert_eq!(retries[0]["dependency"], "http://search:8080");
    assert_eq!(retries[0]["status"], "429");
    assert_eq!(retries[0]["retry_after_ms"], "1000");
    assert_eq!(retries[0]["remaining_ms"], "10000");
    let waited: u64 = retries[0]["wait_ms"].parse().expect("a number");
    assert!((1000..=1200).contains(&waited), "{waited}");
    assert_eq!(retries[1]["attempt"], "2");
    assert_eq!(retries[1]["cause"], "server_error");
    assert_eq!(retries[1]["status"], "502");
    assert_eq!(retries[1]["wait_ms"], "10");
    assert!(!retries[1].contains_key("retry_after_ms"));

    let stop = &log.events("retries exhausted")[0];
    let fields = [
        "attempts",
        "dependency",
        "elapsed_ms",
        "error",
        "error.type",
        "http.request.method",
        "max_attempts",
        "message",
        "processed",
        "reason",
        "retry_after_ms",
        "waited_ms",
    ];
    assert_eq!(names(stop), fields);
    assert_eq!(stop["reason"], "max_attempts");
    assert_eq!(stop["attempts"], "3");
    assert_eq!(stop["max_attempts"], "3");
    assert_eq!(stop["http.request.method"], "POST");
    assert_eq!(stop["processed"], "unknown");
    assert_eq!(stop["waited_ms"], stop["elapsed_ms"]);

    let spans = log.spans();
    assert_eq!(
        names(&spans[0]),
        [
            "dependency",
            "http.request.method",
            "max_attempts",
            "otel.kind"
        ]
    );
    // And one for each attempt.
    assert_eq!(spans.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn logs_one_stop_whatever_the_reason_and_the_answer() {
    for answer in [
        OnExhausted::Respond,
        OnExhausted::PassThrough,
        OnExhausted::Terse,
    ] {
        let log = Log::listen();
        let script = Script::new([answering_secrets(503, "86400")]);
        let service = layer(steady().on_exhausted(answer)).layer(script);
        let response = send(&service, carrying_secrets("GET")).await;
        exhausted(&response.expect("a response"));
        assert_eq!(
            log.messages(),
            [(Level::INFO, "retries exhausted".to_owned())]
        );
        let stop = &log.events("retries exhausted")[0];
        assert_eq!(stop["reason"], "retry_after_too_long");
        assert_eq!(stop["last_status"], "503");
        assert_eq!(stop["retry_after_ms"], "86400000");
        assert!(!log.everything().contains(SECRET), "{}", log.everything());
    }
    let log = Log::listen();
    let answers = given_up().await;
    let stops = log.events("retries exhausted");
    assert_eq!(stops.len(), answers.len());
    for (stop, (reason, _)) in stops.iter().zip(&answers) {
        assert_eq!(stop["reason"], reason.as_str());
    }
    // Every attempt but a call's last was followed by a retry that was told of.
    let sent: u32 = answers
        .iter()
        .map(|(_, answer)| exhausted(answer).attempts())
        .sum();
    let calls = answers
        .iter()
        .filter(|(_, answer)| exhausted(answer).attempts() > 0);
    let unready = 1;
    let retries = log.events("retry scheduled").len();
    assert_eq!(retries, sent as usize - calls.count() + unready);
}

#[tokio::test(start_paused = true)]
async fn logs_a_failure_that_stands_once_and_a_success_never() {
    let log = Log::listen();
    let service = layer(steady()).layer(Script::always(200));
    send(&service, carrying_secrets("GET"))
        .await
        .expect("a response");
    assert_eq!(log.messages(), []);
    let service = layer(steady()).layer(Script::always(500));
    let mut call = carrying_secrets("POST");
    call.headers_mut().remove("idempotency-key");
    send(&service, call).await.expect("a response");
    assert_eq!(log.messages(), [(Level::DEBUG, "not retried".to_owned())]);
    let skip = &log.events("not retried")[0];
    let fields = [
        "attempts",
        "dependency",
        "http.request.method",
        "message",
        "reason",
        "status",
    ];
    assert_eq!(names(skip), fields);
    assert_eq!(skip["reason"], "not_idempotent");
    assert_eq!(skip["attempts"], "1");
    assert_eq!(skip["status"], "500");
    assert!(!log.everything().contains(SECRET), "{}", log.everything());
}

#[tokio::test(start_paused = true)]
async fn does_not_let_a_refused_retry_count_as_one() {
    let none = TokenBudget::builder()
        .cap(0)
        .initial(0)
        .ratio(0.0)
        .no_trickle();
    let none = none.build().expect("a valid budget");
    let log = Log::listen();
    let service = layer(steady()).budget(none).layer(Script::always(502));
    let response = send(&service, get()).await.expect("a response");
    let details = exhausted(&response);
    assert_eq!(details.reason(), StopReason::Budget);
    assert_eq!((details.attempts(), details.waited()), (1, Duration::ZERO));
    assert_eq!(
        details.history().map(|one| one.wait()).sum::<Duration>(),
        Duration::ZERO
    );
    assert_eq!(
        log.messages(),
        [(Level::INFO, "retries exhausted".to_owned())]
    );
}
