//! Something is wrong with the server for a while.

use super::{Lab, MS, SECOND, Scenario, storm::Storm};
use crate::{
    plot::Chart,
    report::Report,
    rules::{Policy, Rule, Waits},
    sim::{Queue, Setup, State},
};
use http::StatusCode;
use std::{ops::Range, time::Duration};

pub(super) const METASTABLE: Scenario = Scenario {
    name: "metastable",
    about: "a server with half its load is away for 3 s: naive retries keep it down afterwards",
    is_quick: false,
    run: metastable,
};

pub(super) const SLOW: Scenario = Scenario {
    name: "slow",
    about: "a server works at a quarter of its speed for 10 s, and clients time out",
    is_quick: false,
    run: slow,
};

pub(super) const RESTART: Scenario = Scenario {
    name: "restart",
    about: "ten instances restart one after the other: a tenth of the requests is refused at a time",
    is_quick: false,
    run: restart,
};

pub(super) const CRASH_LOOP: Scenario = Scenario {
    name: "crash-loop",
    about: "a server crashes every 3 s for 20 s, and starts cold: slower for a second",
    is_quick: false,
    run: crash_loop,
};

pub(super) const SCALE_OUT: Scenario = Scenario {
    name: "scale-out",
    about: "a tenth of the server is left for 15 s, for 20 clients, or after a scale-out to 200",
    is_quick: false,
    run: scale_out,
};

const RULES: &[Rule] = &[
    Rule::NoRetries,
    Rule::Unlimited,
    Rule::TowerTps,
    Rule::Finagle,
    Rule::Grpc,
    Rule::Breaker,
    Rule::Default,
    Rule::Fleet,
];

const DOWN: State = State::Down(StatusCode::SERVICE_UNAVAILABLE);

/// 10 workers that take 10 ms for a request: 1000 requests per second.
const WORKERS: usize = 10;
const WORK: Duration = Duration::from_millis(10);

/// A queue as long as many servers have it: 2 s of work, longer than anybody waits.
const QUEUE: usize = 2000;

fn clients(rps: f64, clients: usize, end: u32) -> Setup {
    let mut setup = Setup::new(rps, clients, SECOND * end);
    // What a user would set, and what makes naive retries dangerous: work that nobody waits for.
    setup.policy = Policy::default()
        .attempt_timeout(500 * MS)
        .waits(Waits::Full(50 * MS));
    setup
}

fn between(from: u32, to: u32) -> Range<Duration> {
    SECOND * from..SECOND * to
}

fn metastable(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let bad = between(15, 18);
    let storm = Storm {
        setup: clients(500.0, 20, 60),
        bad: bad.clone(),
        rps: 500.0,
        rules: RULES,
        default_policy: None,
    };
    let chart = Chart::new(
        "outage",
        "Server with half its load, at a tenth of its speed for 3 s",
        15.0..18.0,
        45.0,
    );
    storm.run(lab, &mut report, Some(chart), |seed| {
        let bad = bad.clone();
        Box::new(Queue::new(
            seed,
            WORKERS,
            WORK,
            QUEUE,
            move |at| match bad.contains(&at) {
                true => State::Slow(10.0),
                false => State::WELL,
            },
        ))
    });
    report.note(
        "The outage fills the queue; every request in it is answered after its client's time-out of 500 ms.\n\
         From then on retries are all that keep it full.",
    );
    report
}

fn slow(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let bad = between(15, 25);
    let storm = Storm {
        setup: clients(500.0, 20, 50),
        bad: bad.clone(),
        rps: 500.0,
        rules: RULES,
        default_policy: None,
    };
    storm.run(lab, &mut report, None, |seed| {
        let bad = bad.clone();
        // A queue of 200: a server that limits what it takes on.
        Box::new(Queue::new(seed, WORKERS, WORK, 200, move |at| {
            match bad.contains(&at) {
                true => State::Slow(4.0),
                false => State::WELL,
            }
        }))
    });
    report
}

fn restart(lab: &Lab<'_>) -> Report {
    const INSTANCES: f64 = 10.0;

    let mut report = Report::default();
    let bad = between(15, 35);
    let storm = Storm {
        setup: clients(500.0, 20, 45),
        bad: bad.clone(),
        rps: 500.0,
        rules: RULES,
        default_policy: None,
    };
    storm.run(lab, &mut report, None, |seed| {
        let bad = bad.clone();
        Box::new(Queue::new(
            seed,
            WORKERS,
            WORK,
            QUEUE,
            move |at| match bad.contains(&at) {
                true => State::Partly(StatusCode::BAD_GATEWAY, 1.0 / INSTANCES),
                false => State::WELL,
            },
        ))
    });
    report.note(
        "A proxy says 502 for the instance that is away; the next attempt goes to another one.",
    );
    report
}

fn crash_loop(lab: &Lab<'_>) -> Report {
    const CYCLE: u128 = 3000;

    let mut report = Report::default();
    let bad = between(15, 35);
    let storm = Storm {
        setup: clients(500.0, 20, 60),
        bad: bad.clone(),
        rps: 500.0,
        rules: RULES,
        default_policy: None,
    };
    let chart = Chart::new(
        "crash-loop",
        "A server crashes every 3 s for 20 s",
        15.0..35.0,
        45.0,
    );
    storm.run(lab, &mut report, Some(chart), |seed| {
        let bad = bad.clone();
        Box::new(Queue::new(seed, WORKERS, WORK, 500, move |at| {
            let since = at.saturating_sub(bad.start).as_millis() % CYCLE;
            match (bad.contains(&at), since) {
                (true, ..1000) => DOWN,
                (true, 1000..2000) => State::Slow(3.0),
                _ => State::WELL,
            }
        }))
    });
    report
}

fn scale_out(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let bad = between(15, 30);
    for (clients_before, note) in [
        (20, "With the 20 clients that know the traffic:"),
        (
            200,
            "With 200, of a tenth of the traffic each: every one of them brings a floor of its own.",
        ),
    ] {
        let storm = Storm {
            setup: clients(500.0, clients_before, 60),
            bad: bad.clone(),
            rps: 500.0,
            rules: RULES,
            default_policy: None,
        };
        report.note(note);
        storm.run(lab, &mut report, None, |seed| {
            let bad = bad.clone();
            Box::new(Queue::new(seed, WORKERS, WORK, 500, move |at| {
                match bad.contains(&at) {
                    true => State::Slow(10.0),
                    false => State::WELL,
                }
            }))
        });
    }
    report
}
