//! What a server's own wait does to a call.
//!
//! Offsets are on paused time. Dates are measured by the clock of the machine, which does not stop,
//! so a date without a `Date` beside it may be a second shorter by the time it is read.

mod support;

use http::{HeaderMap, HeaderName, HeaderValue, Response};
use std::{
    io::ErrorKind,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use support::{
    Body, MS, SECOND, ample, exhausted, get, info, json,
    log::{self, Log},
    request,
    script::{Reply, Script},
    send, steady, text, timed,
};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};
use tower::Layer;
use tower_retry_budget::{
    OnExhausted, RetryBudgetLayer, RetryInfo, RetryPolicy,
    budget::{Key, TokenBudget},
    policy::{Backoff, Outcome, RetryPolicyBuilder, StatusTable, Unit, VendorField, Verdict},
    reason::{Cause, StopReason},
};

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

fn layer(policy: RetryPolicyBuilder) -> RetryBudgetLayer {
    log::install();
    fastrand::seed(1);
    let policy = policy.build().expect("a valid policy");
    RetryBudgetLayer::new().policy(policy).budget(ample())
}

/// Never waits on its own account, so that what is waited is the server's.
fn eager() -> RetryPolicyBuilder {
    steady()
        .backoff(Backoff::none())
        .throttled_backoff(Backoff::none())
}

fn reply(status: u16, headers: &[(&str, &str)]) -> Reply {
    let response = headers.iter().fold(
        Response::builder().status(status),
        |response, (name, value)| response.header(*name, *value),
    );
    Reply::Response(response.body(Body::default()).expect("a valid response"))
}

/// How long after one such answer the second request is sent.
async fn wait_after(policy: RetryPolicyBuilder, answer: Reply) -> Duration {
    let script = Script::new([answer]);
    let service = layer(policy).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 200);
    let offsets = script.offsets();
    assert_eq!(offsets.len(), 2);
    offsets[1] - offsets[0]
}

/// Never earlier than asked, and at most a fifth later; the timer is exact to a millisecond.
#[track_caller]
fn assert_obeys(wait: Duration, asked: Duration) {
    assert!(wait >= asked, "{wait:?} of {asked:?}");
    assert!(wait <= asked.mul_f64(1.2) + MS, "{wait:?} of {asked:?}");
}

fn date(at: SystemTime) -> String {
    httpdate::fmt_http_date(at)
}

#[tokio::test(start_paused = true)]
async fn comes_back_no_earlier_than_asked_and_at_most_a_fifth_later() {
    for status in [408, 425, 429, 500, 502, 503, 504] {
        for seconds in [1, 2, 5, 20] {
            let answer = Reply::retry_after(status, &seconds.to_string());
            let wait = wait_after(eager(), answer).await;
            assert_obeys(wait, seconds * SECOND);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rounds_fractions_up() {
    for (value, seconds) in [("0.503", 1), ("2.0", 2), ("2.542", 3), ("19.052427053", 20)] {
        let wait = wait_after(eager(), Reply::retry_after(429, value)).await;
        assert_obeys(wait, seconds * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn waits_for_the_larger_of_the_hint_and_its_own_back_off() {
    let two = || Reply::retry_after(503, "2");
    assert_obeys(wait_after(eager(), two()).await, 2 * SECOND);
    let own = |wait| steady().throttled_backoff(Backoff::fixed(wait));
    let wait = wait_after(own(10 * SECOND), two()).await;
    assert!(
        (10 * SECOND..=10 * SECOND + 401 * MS).contains(&wait),
        "{wait:?}"
    );
    let wait = wait_after(own(SECOND), Reply::retry_after(503, "3")).await;
    assert_obeys(wait, 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn spreads_the_callers_that_were_sent_away_together() {
    const CALLS: u32 = 1000;

    let replies = (0..CALLS).map(|_| Reply::retry_after(503, "10"));
    let script = Script::new(replies);
    let service = layer(eager()).layer(script.clone());
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let service = service.clone();
        calls.spawn(async move { send(&service, get()).await.expect("a response") });
    }
    for response in calls.join_all().await {
        assert_eq!(response.status(), 200);
    }
    let back = &script.offsets()[CALLS as usize..];
    let mut slots = [0_u32; 4];
    for at in back {
        assert_obeys(*at, 10 * SECOND);
        let slot = (*at - 10 * SECOND).as_millis() / 500;
        slots[usize::try_from(slot).expect("small").min(3)] += 1;
    }
    for calls in slots {
        // A quarter each, and six times the deviation that chance allows.
        assert!(calls.abs_diff(CALLS / 4) < 83, "{slots:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waits_as_asked_each_time_and_with_every_method_that_is_retried() {
    for method in ["GET", "PUT", "PATCH"] {
        let script = Script::new((0..3).map(|_| Reply::retry_after(429, "1")));
        let service = layer(eager().max_attempts(4)).layer(script.clone());
        let mut call = request(method, "abc");
        let key = HeaderValue::from_static("8e03978e");
        call.headers_mut().insert("idempotency-key", key);
        let (response, took) = timed(send(&service, call)).await;
        assert_eq!(response.expect("a response").status(), 200);
        assert_obeys(took, 3 * SECOND);
        for wait in script.offsets().windows(2) {
            assert_obeys(wait[1] - wait[0], SECOND);
        }
        assert!(
            script
                .seen()
                .iter()
                .all(|seen| seen.body == Some("abc".into()))
        );
    }
}

#[tokio::test(start_paused = true)]
async fn uses_its_own_back_off_where_nothing_was_asked() {
    assert_eq!(wait_after(steady(), 429.into()).await, SECOND);
    assert_eq!(wait_after(steady(), 500.into()).await, 10 * MS);
}

#[tokio::test(start_paused = true)]
async fn honours_the_wait_that_comes_with_a_request_time_out() {
    assert_obeys(
        wait_after(steady(), Reply::retry_after(408, "5")).await,
        5 * SECOND,
    );
}

#[tokio::test(start_paused = true)]
async fn leaves_answers_that_are_no_failure_alone_whatever_they_ask() {
    for status in [200, 202, 301, 303, 400, 401, 403, 404, 413] {
        let budget = TokenBudget::builder().no_trickle().build();
        let budget = Arc::new(budget.expect("a valid budget"));
        let headers = [("retry-after", "5"), ("location", "/elsewhere")];
        let script = Script::new([reply(status, &headers)]);
        let service = layer(steady()).shared_budget(budget.clone());
        let service = service.layer(script.clone());
        let (response, took) = timed(send(&service, get())).await;
        let response = response.expect("a response");
        assert_eq!(response.status(), status);
        assert_eq!(response.headers()["retry-after"], "5");
        assert_eq!(response.headers()["location"], "/elsewhere");
        assert_eq!(took, Duration::ZERO);
        assert_eq!(script.count(), 1);
        let held = budget.snapshot(&Key::from_uri(get().uri()), Instant::now().into_std());
        assert_eq!((held.balance(), held.ceiling()), (5.2, 30.0));
    }
}

#[tokio::test(start_paused = true)]
async fn waits_before_it_repeats_what_only_the_policy_calls_a_failure() {
    let table = StatusTable::default().with(http::StatusCode::PAYLOAD_TOO_LARGE);
    let wait = wait_after(eager().statuses(table), Reply::retry_after(413, "1")).await;
    assert_obeys(wait, SECOND);
}

#[tokio::test(start_paused = true)]
async fn stops_at_once_and_hands_the_hint_on_when_it_is_too_long() {
    let huge = u64::MAX.to_string();
    for (value, handed_on) in [
        ("61", "61"),
        ("86400", "86400"),
        ("2147484", "2147484"),
        ("1790000000", "1790000000"),
        ("9999999999", "9999999999"),
        (&*huge, &*huge),
        ("99999999999999999999999999", &*huge),
    ] {
        for status in [429, 503] {
            for total in [None, Some(30 * SECOND)] {
                let script = Script::new([Reply::retry_after(status, value)]);
                let service = layer(steady().total_timeout(total)).layer(script.clone());
                let (response, took) = timed(send(&service, get())).await;
                let response = response.expect("a response");
                assert_eq!(response.status(), 503);
                assert_eq!(response.headers()["retry-after"], handed_on);
                let details = exhausted(&response);
                assert_eq!(details.reason(), StopReason::RetryAfterTooLong);
                assert_eq!(details.attempts(), 1);
                assert!(details.is_retryable());
                assert_eq!(took, Duration::ZERO);
                assert_eq!(script.count(), 1);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stops_at_once_when_the_hint_does_not_fit_the_deadline() {
    for (total, value) in [(10, "300"), (2, "30"), (10, "10")] {
        let policy = eager().total_timeout(total * SECOND);
        let policy = policy.max_retry_after(1000 * SECOND);
        let script = Script::new([Reply::retry_after(503, value)]);
        let service = layer(policy).layer(script.clone());
        let (response, took) = timed(send(&service, get())).await;
        let response = response.expect("a response");
        assert_eq!(exhausted(&response).reason(), StopReason::RetryAfterTooLong);
        let handed_on = response.headers()["retry-after"].to_str();
        let handed_on: u64 = handed_on.expect("text").parse().expect("seconds");
        assert!(handed_on >= value.parse().expect("seconds"));
        assert_eq!(took, Duration::ZERO);
        assert_eq!(script.count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn spreads_a_hint_no_further_than_the_deadline_leaves() {
    for _ in 0..50 {
        let policy = eager().total_timeout(10 * SECOND);
        let wait = wait_after(policy, Reply::retry_after(503, "9")).await;
        assert!(
            wait >= 9 * SECOND && wait <= 9 * SECOND + 990 * MS,
            "{wait:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn obeys_its_own_ceiling_for_hints() {
    let policy = || eager().max_retry_after(10 * SECOND);
    assert_obeys(
        wait_after(policy(), Reply::retry_after(429, "10")).await,
        10 * SECOND,
    );
    let script = Script::new([Reply::retry_after(429, "3600")]);
    let service = layer(policy()).layer(script.clone());
    let (response, took) = timed(send(&service, get())).await;
    let response = response.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::RetryAfterTooLong);
    assert_eq!(took, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn never_shortens_a_wait_that_a_timer_cannot_hold() {
    let patient = || eager().max_retry_after(Duration::MAX).total_timeout(None);
    let wait = wait_after(patient(), Reply::retry_after(503, "2147484")).await;
    assert_obeys(wait, 2_147_484 * SECOND);

    let script = Script::new([Reply::retry_after(503, "9999999999")]);
    let service = layer(patient()).layer(script.clone());
    let year = 365 * 24 * 3600 * SECOND;
    let waiting = timeout(year, send(&service, get())).await;
    assert!(waiting.is_err(), "it waits for 317 years");
    assert_eq!(script.count(), 1);

    let script = Script::new([Reply::retry_after(503, &u64::MAX.to_string())]);
    let service = layer(patient()).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::RetryAfterTooLong);
}

#[tokio::test(start_paused = true)]
async fn takes_zero_and_a_past_date_for_leave_to_retry_at_the_usual_price() {
    let past = [
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Fri, 31 Dec 1999 23:59:59 GMT",
    ];
    for value in ["0", "0.0", past[0], past[1]] {
        let budget = TokenBudget::builder().no_trickle().build();
        let budget = Arc::new(budget.expect("a valid budget"));
        let script = Script::new([Reply::retry_after(503, value)]);
        let service = layer(steady()).shared_budget(budget.clone());
        let service = service.layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.status(), 200);
        assert_eq!(info(&response).attempts, 2);
        assert_eq!(script.offsets(), [Duration::ZERO, SECOND]);
        let held = budget.snapshot(&Key::from_uri(get().uri()), Instant::now().into_std());
        assert_eq!(held.balance(), 4.0);

        let script = Script::new((0..5).map(|_| Reply::retry_after(429, value)));
        let service = layer(eager()).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
        assert_eq!(script.count(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn never_lets_a_wait_get_round_the_limit_on_attempts() {
    let script = Script::new((0..9).map(|_| Reply::retry_after(503, "1")));
    let service = layer(steady()).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::MaxAttempts);
    assert_eq!(script.count(), 3);
    let script = Script::new((0..9).map(|_| Reply::retry_after(503, "86400")));
    let service = layer(steady()).layer(script.clone());
    let (response, took) = timed(send(&service, get())).await;
    exhausted(&response.expect("a response"));
    assert_eq!((script.count(), took), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn reads_a_vendor_field_only_when_the_policy_names_it() {
    let both = |ms| reply(429, &[("retry-after-ms", ms), ("retry-after", "3")]);
    let named = || eager().retry_after_field(VendorField::new(RETRY_AFTER_MS, Unit::Milliseconds));
    assert_obeys(wait_after(eager(), both("1500")).await, 3 * SECOND);
    assert_obeys(wait_after(named(), both("1500")).await, 1500 * MS);
    assert_obeys(wait_after(named(), both("abc")).await, 3 * SECOND);
    let alone = reply(429, &[("retry-after-ms", "1500")]);
    assert_eq!(wait_after(steady(), alone).await, SECOND);
}

#[tokio::test(start_paused = true)]
async fn takes_the_standard_field_for_seconds_unless_this_request_says_otherwise() {
    let seven = || Reply::retry_after(429, "7");
    assert_obeys(wait_after(eager(), seven()).await, 7 * SECOND);

    let field = VendorField::new(http::header::RETRY_AFTER, Unit::Milliseconds);
    let policy = eager().retry_after_field(field).build();
    let script = Script::new([seven(), 200.into(), seven()]);
    let service = layer(eager()).layer(script.clone());
    let mut odd = get();
    odd.extensions_mut().insert(policy.expect("a valid policy"));
    send(&service, odd).await.expect("a response");
    assert_obeys(script.offsets()[1], 7 * MS);
    let (response, took) = timed(send(&service, get())).await;
    assert_eq!(response.expect("a response").status(), 200);
    assert_obeys(took, 7 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn reads_a_time_since_the_epoch_only_when_the_policy_says_so() {
    let now = SystemTime::now();
    let epoch = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970");
    let then = (epoch.as_secs() + 20).to_string();
    let answer = || reply(429, &[("retry-after", &then), ("date", &date(now))]);
    let field = VendorField::new(http::header::RETRY_AFTER, Unit::UnixSeconds);
    let wait = wait_after(eager().retry_after_field(field), answer()).await;
    assert_obeys(wait, 20 * SECOND);
    let service = layer(eager()).layer(Script::new([answer()]));
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::RetryAfterTooLong);
}

#[tokio::test(start_paused = true)]
async fn measures_a_date_by_the_servers_own_clock() {
    let minutes = 60 * SECOND;
    let now = SystemTime::now();
    for server in [now, now + 10 * minutes, now - 10 * minutes] {
        for seconds in [2, 20] {
            let then = date(server + seconds * SECOND);
            let answer = reply(503, &[("date", &date(server)), ("retry-after", &then)]);
            assert_obeys(wait_after(eager(), answer).await, seconds * SECOND);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn measures_a_date_by_its_own_clock_where_the_server_names_none() {
    for seconds in [5, 25] {
        let then = date(SystemTime::now() + seconds * SECOND);
        let wait = wait_after(eager(), Reply::retry_after(503, &then)).await;
        // A date has whole seconds, and the clock goes on until it is read.
        assert!(
            wait + 3 * SECOND >= seconds * SECOND,
            "{wait:?} of {seconds} s"
        );
        assert!(
            wait <= (seconds * SECOND).mul_f64(1.2) + MS,
            "{wait:?} of {seconds} s"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn obeys_the_longest_of_repeated_lines() {
    for lines in [["1", "20"], ["20", "1"], ["soon", "20"], ["20", "soon"]] {
        let answer = reply(503, &lines.map(|value| ("retry-after", value)));
        assert_obeys(wait_after(eager(), answer).await, 20 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn passes_over_blanks_around_the_value() {
    let seven = HeaderValue::from_bytes(b"  \t7 ").expect("blanks are allowed");
    let mut response = Response::new(Body::default());
    *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert("retry-after", seven);
    assert_obeys(
        wait_after(eager(), Reply::Response(response)).await,
        7 * SECOND,
    );
}

#[tokio::test(start_paused = true)]
async fn logs_a_malformed_value_once_and_uses_its_own_back_off() {
    let malformed: [&[u8]; 14] = [
        b"",
        b"+3",
        b".5",
        b"5.",
        b"1e3",
        b"81,120",
        b"-1",
        b"120junk",
        b"1 2",
        b"soon",
        b"1\xe4",
        b"1 Jan 2099 00:00:00",
        b"2031-01-01T00:00:00Z",
        b"Wed, 01 Jan 2031 00:00:00 XYZ",
    ];
    for value in malformed {
        let log = Log::listen();
        let mut response = Response::new(Body::default());
        *response.status_mut() = http::StatusCode::BAD_GATEWAY;
        let value = HeaderValue::from_bytes(value).expect("a possible value");
        response.headers_mut().insert("retry-after", value.clone());
        let wait = wait_after(steady(), Reply::Response(response)).await;
        assert_eq!(wait, 10 * MS, "{value:?}");
        let logged = log.events("malformed Retry-After: own back-off applies");
        assert_eq!(logged.len(), 1, "{value:?}");
        assert_eq!(logged[0]["attempt"], "1");
        assert_eq!(logged[0]["dependency"], "http://search:8080");
        assert_eq!(log.messages().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn does_not_log_a_value_that_it_can_read() {
    let log = Log::listen();
    wait_after(steady(), Reply::retry_after(502, "0")).await;
    wait_after(steady(), 502.into()).await;
    assert_eq!(log.messages().len(), 2);
    let retries = log.events("retry scheduled");
    assert_eq!(retries[0]["retry_after_ms"], "0");
    assert!(!retries[1].contains_key("retry_after_ms"));
}

#[tokio::test(start_paused = true)]
async fn passes_the_last_answer_through_with_its_own_header() {
    let later = date(SystemTime::now() + 7200 * SECOND);
    let policy = || steady().on_exhausted(OnExhausted::PassThrough);
    for value in ["86400", "99999999999999999999999", &*later] {
        let script = Script::new([reply(503, &[("retry-after", value), ("x-why", "full")])]);
        let service = layer(policy()).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(response.headers()["retry-after"], value);
        assert_eq!(response.headers()["x-why"], "full");
        assert_eq!(exhausted(&response).reason(), StopReason::RetryAfterTooLong);
        assert_eq!(text(response).await, "");
    }
}

const RATE_LIMIT: [(&str, &str); 4] = [
    ("ratelimit", "\"default\";r=0;t=2"),
    ("ratelimit-policy", "\"default\";q=100;w=60"),
    ("x-ratelimit-remaining", "0"),
    ("x-request-id", "not for the caller"),
];

fn throttled() -> Reply {
    let mut headers = vec![("retry-after", "2")];
    headers.extend(RATE_LIMIT);
    reply(429, &headers)
}

#[tokio::test(start_paused = true)]
async fn keeps_what_a_last_429_said_of_the_callers_limits() {
    let script = Script::new([throttled(), throttled(), throttled()]);
    let service = layer(eager()).layer(script);
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "2");
    assert_eq!(
        response.headers()["content-type"],
        "application/problem+json"
    );
    for (name, value) in &RATE_LIMIT[..3] {
        assert_eq!(response.headers()[*name], value);
    }
    assert!(!response.headers().contains_key("x-request-id"));
    assert_eq!(json(response).await["last_status"], 429);
}

fn says_nothing_of_limits(headers: &HeaderMap) -> bool {
    !headers
        .keys()
        .any(|name| name.as_str().contains("ratelimit"))
}

#[tokio::test(start_paused = true)]
async fn forgets_what_an_earlier_429_said_when_another_failure_follows() {
    let hang = eager().attempt_timeout(SECOND);
    for (policy, last) in [
        (eager(), Reply::Status(503)),
        (eager(), Reply::io(ErrorKind::ConnectionReset)),
        (hang, Reply::Hang),
    ] {
        let script = Script::new([throttled(), last]);
        let service = layer(policy.max_attempts(2)).layer(script.clone());
        let response = send(&service, get()).await.expect("a response");
        assert_eq!(exhausted(&response).attempts(), 2);
        assert_ne!(
            exhausted(&response).last_status(),
            Some(http::StatusCode::TOO_MANY_REQUESTS)
        );
        assert!(
            says_nothing_of_limits(response.headers()),
            "{:?}",
            response.headers()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn hands_on_what_is_left_of_a_hint_that_was_cut_short() {
    // The service is asked for another attempt after the wait, and never gets ready for it.
    let script = Script::new([Reply::retry_after(429, "20")]);
    let script = script.readiness([
        support::script::Readiness::Ready,
        support::script::Readiness::Never,
    ]);
    let service = layer(eager().total_timeout(30 * SECOND)).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::DeadlineReached);
    // The twenty seconds have passed.
    assert_eq!(response.headers()["retry-after"], "0");
}

#[tokio::test(start_paused = true)]
async fn lets_a_classifier_see_all_that_a_wait_may_depend_on() {
    #[derive(Debug, PartialEq)]
    struct Seen {
        path: String,
        tenant: String,
        status: Option<u16>,
        asked: Option<String>,
        attempt: u32,
        elapsed: Duration,
        remaining: Option<Duration>,
    }
    let all = Arc::<Mutex<Vec<Seen>>>::default();
    let kept = Arc::clone(&all);
    let classifier = move |outcome: &Outcome<'_>| {
        let text = |headers: &HeaderMap, name: &str| {
            let value = headers.get(name)?.to_str().ok()?;
            Some(value.to_owned())
        };
        kept.lock().expect("no panic inside").push(Seen {
            path: outcome.uri().path().into(),
            tenant: text(outcome.request_headers(), "x-tenant").unwrap_or_default(),
            status: outcome.status().map(|status| status.as_u16()),
            asked: outcome
                .response_headers()
                .and_then(|headers| text(headers, "x-wait")),
            attempt: outcome.attempt(),
            elapsed: outcome.elapsed(),
            remaining: outcome.remaining(),
        });
        let wait = outcome.response_headers()?.get("x-wait")?.to_str().ok()?;
        let wait = Duration::from_secs(wait.parse().ok()?);
        Some(Verdict::retry(Cause::Throttled).after(wait))
    };
    let script = Script::new([reply(200, &[("x-wait", "4"), ("retry-after", "1")])]);
    let service = layer(eager().classifier(classifier)).layer(script.clone());
    let mut call = get();
    let tenant = HeaderValue::from_static("a");
    call.headers_mut().insert("x-tenant", tenant);
    let response = send(&service, call).await.expect("a response");
    assert_eq!(
        response
            .extensions()
            .get::<RetryInfo>()
            .map(|info| info.attempts),
        Some(2)
    );
    let wait = script.offsets()[1];
    assert_obeys(wait, 4 * SECOND);
    let seen = |status, asked: Option<&str>, attempt, elapsed| Seen {
        path: "/find".into(),
        tenant: "a".into(),
        status,
        asked: asked.map(Into::into),
        attempt,
        elapsed,
        remaining: Some(30 * SECOND - elapsed),
    };
    let expected = [
        seen(Some(200), Some("4"), 1, Duration::ZERO),
        seen(Some(200), None, 2, wait),
    ];
    assert_eq!(*all.lock().expect("no panic inside"), expected);
}

#[tokio::test(start_paused = true)]
async fn stops_when_the_wait_of_a_classifier_does_not_fit() {
    let policy = RetryPolicy::builder()
        .classifier(|_: &Outcome<'_>| Some(Verdict::retry(Cause::Other).after(90 * SECOND)));
    let script = Script::always(500);
    let service = layer(policy).layer(script.clone());
    let response = send(&service, get()).await.expect("a response");
    assert_eq!(exhausted(&response).reason(), StopReason::RetryAfterTooLong);
    assert_eq!(response.headers()["retry-after"], "90");
}
