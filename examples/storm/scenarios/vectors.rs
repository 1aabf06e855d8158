//! Figures that need no traffic: unit vectors of peers' rules, and the arithmetic of back-offs.

use super::{Lab, MS, SECOND, Scenario};
use crate::{
    report::{Figure, Report},
    rules::{Aws, Grpc},
    sim::{Answer, Ask, attempts_of_one_call},
};
use http::StatusCode;
use std::{sync::Arc, time::Duration};
use tower_retry_budget::{
    RetryPolicy,
    budget::{Budget, Key, WindowBudget, Withdrawal},
    policy::{Backoff, Jitter},
    reason::Cause,
};

pub(super) const VECTORS: Scenario = Scenario {
    name: "vectors",
    about: "what the rules of Finagle, gRPC and AWS do one step at a time",
    is_quick: true,
    run: vectors,
};

pub(super) const ARITHMETIC: Scenario = Scenario {
    name: "arithmetic",
    about: "how many attempts fit a time, by the back-off and by a call of the real layer",
    is_quick: true,
    run: arithmetic,
};

fn vectors(_: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let finagle: Arc<dyn Budget> = Arc::new(WindowBudget::finagle());
    let mut figures = vec![Figure::exact(
        "Finagle: retries without any traffic",
        100,
        failing(&finagle, Cause::ServerError),
    )];
    for _ in 0..20 {
        deposit(&finagle, false);
    }
    figures.push(Figure::exact(
        "Finagle: more after 20 requests",
        4,
        failing(&finagle, Cause::ServerError),
    ));

    let grpc: Arc<dyn Budget> = Arc::new(Grpc::default());
    let mut failures = 1;
    deposit(&grpc, true);
    while is_granted(&grpc) {
        failures += 1;
        deposit(&grpc, true);
    }
    figures.push(Figure::exact(
        "gRPC: the failure in a row that is not retried",
        5,
        failures,
    ));
    let mut successes = 0;
    loop {
        successes += 1;
        let again: Arc<dyn Budget> = Arc::new(Grpc::default());
        (0..failures).for_each(|_| deposit(&again, true));
        (0..successes).for_each(|_| deposit(&again, false));
        deposit(&again, true);
        if is_granted(&again) {
            break;
        }
    }
    figures.push(Figure::exact(
        "gRPC: successes until a failure is retried again",
        11,
        successes,
    ));

    for (name, cause, published) in [
        ("failing retries", Cause::ServerError, 100),
        ("retries of time-outs", Cause::Timeout, 50),
    ] {
        let aws: Arc<dyn Budget> = Arc::new(Aws::older());
        figures.push(Figure::exact(
            format!("AWS 2.0: {name}"),
            published,
            failing(&aws, cause),
        ));
    }
    report.figures_last(figures);
    report
}

fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

fn key() -> Key {
    Key::from_static("server")
}

fn deposit(budget: &Arc<dyn Budget>, failed: bool) {
    budget.deposit(&key(), failed, now());
}

/// Whether there is a retry, which is then not sent.
fn is_granted(budget: &Arc<dyn Budget>) -> bool {
    let retry = Arc::clone(budget).withdraw(&key(), Cause::ServerError, now());
    matches!(retry, Withdrawal::Granted(_))
}

/// How many retries are sent, and fail, until there are no more.
fn failing(budget: &Arc<dyn Budget>, cause: Cause) -> u32 {
    let mut sent = 0;
    while let Withdrawal::Granted(mut permit) = Arc::clone(budget).withdraw(&key(), cause, now()) {
        permit.sent();
        sent += 1;
    }
    sent
}

/// The time to be covered in seconds, the retries whose delays do, and the seconds they take.
const COVERED: &[(u64, u32, u32)] = &[
    (60, 5, 62),
    (300, 8, 510),
    (900, 9, 1022),
    (3600, 14, 4022),
    (14_400, 32, 14_822),
];

fn arithmetic(_: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let mut figures = Vec::new();
    let doubling = |cap: u64| {
        Backoff::builder()
            .base(2 * SECOND)
            .cap(Duration::from_secs(cap))
    };
    let plain = doubling(600)
        .jitter(Jitter::None)
        .build()
        .expect("valid numbers");
    for &(covered, published, seconds) in COVERED {
        let (mut retries, mut sum) = (0, Duration::ZERO);
        while sum < Duration::from_secs(covered) {
            retries += 1;
            sum += plain.delay(retries, Duration::ZERO);
        }
        let took = u32::try_from(sum.as_secs()).unwrap_or(u32::MAX);
        figures.push(Figure::exact(
            format!("retries that cover {covered} s"),
            published,
            retries,
        ));
        figures.push(Figure::exact(
            format!("seconds that those {retries} take"),
            seconds,
            took,
        ));
    }
    // The mean of full jitter is half of it, each time.
    let mean = || {
        doubling(300)
            .jitter(Jitter::from_fn(|| 0.5))
            .build()
            .expect("valid numbers")
    };
    for (window, most, published, last) in [
        (900, 1000, 13, 855),
        (7200, 1000, 55, 7155),
        (7200, 16, 16, 1305),
    ] {
        let policy = RetryPolicy::builder()
            .max_attempts(most)
            .total_timeout(Duration::from_secs(window))
            .backoff(mean())
            .build();
        let times = attempts_of_one_call(policy.expect("valid numbers"), |ask: Ask<'_>| {
            Answer::new(StatusCode::INTERNAL_SERVER_ERROR, ask.at)
        });
        let what = format!("{window} s, at most {most}: attempts");
        figures.push(Figure::exact(what, published, count(&times)));
        let at = times.last().map_or(0, Duration::as_secs);
        let what = format!("{window} s, at most {most}: second of the last one");
        figures.push(Figure::exact(
            what,
            last,
            u32::try_from(at).unwrap_or(u32::MAX),
        ));
    }
    let timeouts = RetryPolicy::builder()
        .max_attempts(1000)
        .attempt_timeout(2 * SECOND)
        .min_attempt(2 * SECOND)
        .total_timeout(10 * SECOND)
        .backoff(
            Backoff::builder()
                .base(100 * MS)
                .cap(5 * SECOND)
                .jitter(Jitter::None)
                .build()
                .expect("valid numbers"),
        );
    let times = attempts_of_one_call(timeouts.build().expect("valid numbers"), |ask: Ask<'_>| {
        Answer::new(StatusCode::OK, ask.at + SECOND * 3600)
    });
    figures.push(Figure::exact(
        "10 s with time-outs of 2 s: attempts",
        4,
        count(&times),
    ));
    report.figures_last(figures);
    report
}

fn count(times: &[Duration]) -> u32 {
    u32::try_from(times.len()).unwrap_or(u32::MAX)
}
