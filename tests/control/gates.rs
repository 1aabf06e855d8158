//! A gate that is only observed is, on the wire, one that is not there.

use super::{built, layer};
use crate::support::{
    Body, MS, SECOND, exhausted, get,
    ledger::{Answer, Ledger},
    recorder::Recorder,
    request,
    script::{Reply, Script},
    send, steady, text,
};
use http::{Request, header::HeaderMap};
use std::time::Duration;
use tower::Layer;
use tower_retry_budget::{
    Deadline, Exhausted, HoldOff, RetryBudgetLayer,
    body::ReplayBody,
    control::{Gate, Gates, Mode},
    deadline::RETRY_ATTEMPT,
    policy::{AdaptiveLimits, Backoff, CircuitState, Idempotent, RetryPolicyBuilder},
    reason::StopReason,
};

/// All that a dependency sees, and all that the caller sees.
#[derive(Debug, PartialEq)]
struct Wire {
    requests: Vec<(String, HeaderMap, String, Duration)>,
    answer: (u16, HeaderMap, String),
    /// Whether the budget filled, and how often it was asked.
    deposits: usize,
}

/// One call, and what the dependency makes of it.
struct Case {
    name: &'static str,
    policy: fn() -> RetryPolicyBuilder,
    replies: fn() -> Vec<Reply>,
    request: fn() -> Request<Body>,
    denied: bool,
}

fn cases() -> Vec<Case> {
    let plain = Case {
        name: "a success",
        policy: steady,
        replies: || vec![200.into()],
        request: || request("PUT", "abc"),
        denied: false,
    };
    let failing = || vec![502.into(), 503.into(), 502.into()];
    vec![
        Case {
            name: "failures",
            replies: failing,
            ..plain
        },
        Case {
            name: "failures of what is not idempotent",
            replies: failing,
            request: || request("POST", "abc"),
            ..plain
        },
        Case {
            name: "a refused connection",
            replies: || vec![Reply::io(std::io::ErrorKind::ConnectionRefused)],
            request: || request("POST", "abc"),
            ..plain
        },
        Case {
            name: "a wait that the server asks for",
            replies: || vec![Reply::retry_after(503, "2"), Reply::retry_after(429, "900")],
            ..plain
        },
        Case {
            name: "a budget that denies",
            replies: failing,
            denied: true,
            ..plain
        },
        Case {
            name: "an answer after the deadline",
            policy: || steady().total_timeout(SECOND),
            replies: || vec![Reply::after_ms(1_500, 200.into())],
            ..plain
        },
        Case {
            name: "a retry that does not fit the deadline",
            policy: || {
                steady()
                    .total_timeout(SECOND)
                    .backoff(Backoff::fixed(2 * SECOND))
            },
            replies: failing,
            ..plain
        },
        Case {
            name: "a deadline that has passed",
            request: || {
                let mut request = get();
                request
                    .extensions_mut()
                    .insert(Deadline::after(Duration::ZERO));
                request
            },
            ..plain
        },
        Case {
            name: "a time-out of an attempt",
            policy: || steady().attempt_timeout(100 * MS),
            replies: || vec![Reply::Hang, 200.into()],
            ..plain
        },
        Case {
            name: "a layer below that gave up",
            replies: || {
                let response = http::Response::builder()
                    .status(502)
                    .header("x-retry-exhausted", "reason=budget");
                let response = response.body(Body::default()).expect("a valid response");
                vec![Reply::Response(response), 200.into()]
            },
            ..plain
        },
        Case {
            name: "an attempt number that the caller wrote",
            replies: failing,
            request: || {
                let mut request = get();
                let value = http::HeaderValue::from_static("2;max=7");
                request.headers_mut().insert(RETRY_ATTEMPT, value);
                request.extensions_mut().insert(Idempotent(true));
                request
            },
            ..plain
        },
        plain,
    ]
}

async fn wire(case: &Case, gates: Gates, handlers: bool) -> (Wire, Vec<String>) {
    // Waits that a server asks for are spread by chance.
    fastrand::seed(7);
    let ledger = Ledger::new(case.denied.then_some(Answer::Deny(StopReason::Budget)));
    let recorder = Recorder::default();
    let side = if handlers {
        RetryBudgetLayer::for_handlers()
    } else {
        RetryBudgetLayer::new()
    };
    let layer = side
        .policy(built((case.policy)()))
        .shared_budget(ledger.clone())
        .gates(gates)
        .observe(recorder.clone());
    let script = Script::new((case.replies)());
    let answer = match send(&layer.layer(script.clone()), (case.request)()).await {
        Ok(response) => {
            let (status, mut headers) = (response.status().as_u16(), response.headers().clone());
            // The layer's own has chance in it.
            if response.extensions().get::<Exhausted>().is_some() {
                headers.remove("retry-after");
                (status, headers, String::new())
            } else {
                (status, headers, text(response).await)
            }
        }
        Err(error) => (0, HeaderMap::new(), error.to_string()),
    };
    let requests = script.seen().into_iter().map(|seen| {
        let line = format!("{} {}", seen.head.method, seen.head.uri);
        let body = seen.body.unwrap_or_default();
        let body = String::from_utf8_lossy(&body).into_owned();
        (line, seen.head.headers.clone(), body, seen.at)
    });
    let wire = Wire {
        requests: requests.collect(),
        answer,
        deposits: ledger.deposits().len(),
    };
    let told = recorder.take();
    let shadows = told.into_iter().filter(|line| line.starts_with("shadow"));
    (wire, shadows.collect())
}

#[tokio::test(start_paused = true)]
async fn observing_is_to_the_byte_what_off_is() {
    let mut counted = 0;
    for handlers in [false, true] {
        for case in cases() {
            for gate in Gate::ALL {
                let at = |mode| Gates::default().with(*gate, mode);
                let (mut off, none) = wire(&case, at(Mode::Off), handlers).await;
                assert!(none.is_empty(), "{none:?}");
                let (observed, some) = wire(&case, at(Mode::Observe), handlers).await;
                // What is only counted is still kept account of.
                if *gate == Gate::Budget {
                    off.deposits = observed.deposits;
                }
                assert_eq!(observed, off, "{} behind {gate}", case.name);
                counted += some.len();
            }
            let (_, none) = wire(&case, Gates::default(), handlers).await;
            assert!(none.is_empty(), "{none:?}");
        }
    }
    assert!(counted > 12, "{counted}");
}

#[tokio::test(start_paused = true)]
async fn retries_that_are_off_are_a_policy_of_one_attempt() {
    for case in cases() {
        let gates = Gates::default().with(Gate::Retry, Mode::Off);
        let (off, _) = wire(&case, gates, false).await;
        let layer = layer((case.policy)().max_attempts(1));
        let script = Script::new((case.replies)());
        _ = send(&layer.layer(script.clone()), (case.request)()).await;
        let heads = script
            .seen()
            .into_iter()
            .map(|seen| seen.head.headers.clone());
        let off = off.requests.into_iter().map(|request| request.1);
        assert!(heads.eq(off), "{}", case.name);
    }
}

/// The next hop retries for itself where this layer does not.
#[tokio::test(start_paused = true)]
async fn a_layer_inside_retries_while_the_one_outside_only_observes() {
    let script = Script::always(502);
    let inner = layer(steady()).layer(script.clone());
    let outer = layer(steady()).gates(Gates::default().with(Gate::Retry, Mode::Observe));
    send(&outer.layer(inner), get()).await.unwrap();
    assert_eq!(script.count(), 3);
    let script = Script::always(502);
    let inner = layer(steady()).layer(script.clone());
    let outer = layer(steady().max_attempts(2));
    send(&outer.layer(inner), get()).await.unwrap();
    assert_eq!(script.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_overdue_call_is_not_cut_and_its_server_told_of_no_deadline() {
    for mode in [Mode::Observe, Mode::Off] {
        let layer = layer(steady().total_timeout(SECOND))
            .gates(Gates::default().with(Gate::Deadline, mode));
        let script = Script::new([Reply::after_ms(5_000, 200.into())]);
        let response = send(&layer.layer(script.clone()), get()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(script.seen()[0].header("x-deadline-remaining-ms"), None);
    }
}

/// The layer does not cut, and hands on what others are to cut by.
#[tokio::test(start_paused = true)]
async fn handlers_inherit_a_deadline_that_is_not_enforced() {
    let gates = Gates::default().with(Gate::Deadline, Mode::Observe);
    let layer = RetryBudgetLayer::for_handlers().gates(gates);
    let handler = tower::service_fn(|_: Request<ReplayBody<Body>>| async {
        let left = Deadline::current().expect("a deadline").remaining();
        assert!(left <= SECOND && left > 900 * MS, "{left:?}");
        tokio::time::sleep(2 * SECOND).await;
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::default()))
    });
    let mut request = get();
    let value = http::HeaderValue::from_static("1000");
    request
        .headers_mut()
        .insert("x-deadline-remaining-ms", value);
    let response = send(&layer.layer(handler), request).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn gates_change_for_calls_that_begin() {
    let layer = layer(steady());
    let control = layer.control();
    let script = Script::always(502);
    let service = layer.layer(script.clone());
    control.gates(Gates::all(Mode::Observe));
    send(&service, get()).await.unwrap();
    assert_eq!(script.count(), 1);
    control.gates(Gates::default());
    send(&service, get()).await.unwrap();
    assert_eq!(script.count(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_sleeps_ends_when_retries_are_only_observed_from_now_on() {
    let layer = layer(super::sleepy());
    let control = layer.control();
    let script = Script::always(502);
    let service = layer.layer(script.clone());
    let call = tokio::spawn(async move { (send(&service, get()).await, service) });
    tokio::time::sleep(300 * MS).await;
    control.gates(Gates::default().with(Gate::Retry, Mode::Observe));
    let (response, service) = call.await.unwrap();
    assert_eq!(exhausted(&response.unwrap()).reason(), StopReason::Disabled);
    assert_eq!(script.count(), 1);
    // Switched off besides, it stays so when the gate is closed again.
    control.retries_off();
    control.gates(Gates::default());
    send(&service, get()).await.unwrap();
    assert_eq!(script.count(), 2);
}

/// To observe retries is to change nothing: neither what an open breaker would refuse, nor what others were
/// asked to wait for.
#[tokio::test(start_paused = true)]
async fn breakers_and_hold_offs_go_with_the_retries() {
    for (mode, sent) in [(Mode::Enforce, 0), (Mode::Observe, 2), (Mode::Off, 2)] {
        let open = || CircuitState::Open { retry_after: None };
        let limits = AdaptiveLimits::builder().circuit(move |_| open()).build();
        let layer = layer(steady())
            .adaptive(limits.expect("valid limits"))
            .hold_off(HoldOff::new().first_attempts())
            .gates(Gates::default().with(Gate::Retry, mode));
        let script = Script::new([Reply::retry_after(503, "60")]);
        let service = layer.layer(script.clone());
        for _ in 0..2 {
            send(&service, get()).await.expect("a response");
        }
        assert_eq!(script.count(), sent, "{mode:?}");
        assert!(script.offsets().iter().all(Duration::is_zero), "{mode:?}");
    }
}
