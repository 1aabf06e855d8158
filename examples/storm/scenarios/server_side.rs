//! Something is wrong with the server for a while.

use super::{Lab, MS, SECOND, Scenario, seconds, storm::Storm};
use crate::{
    plot::Chart,
    report::Report,
    rules::{Policy, Rule, Waits},
    sim::{Joining, Queue, Server, Setup, State},
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
    about: "a tenth of the server is left for 15 s, and the clients scale out from 20 to 200",
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

/// Half of what the server can do.
const RPS: f64 = 500.0;

/// 20 clients with half of what the server can do, and what becomes of it when the server is not well.
fn storm(bad: &Range<Duration>, end: u32) -> Storm<'static> {
    let mut setup = Setup::new(RPS, 20, SECOND * end);
    // What a user would set, and what makes naive retries dangerous: work that nobody waits for.
    setup.policy = Policy::default()
        .attempt_timeout(500 * MS)
        .waits(Waits::Full(50 * MS));
    Storm::new(setup, bad.clone(), RPS, RULES)
}

/// A server with such a queue, that is in this state while things are bad.
fn server(
    queue: usize,
    bad: &Range<Duration>,
    state: impl Fn(Duration) -> State + Send + Copy + 'static,
) -> impl Fn(u64) -> Box<dyn Server> {
    let bad = bad.clone();
    move |seed| {
        let bad = bad.clone();
        let state = move |at| match bad.contains(&at) {
            true => state(at - bad.start),
            false => State::WELL,
        };
        Box::new(Queue::new(seed, WORKERS, WORK, queue, state))
    }
}

fn metastable(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let bad = seconds(15..18);
    let chart = Chart::new(
        "outage",
        "Server with half its load, at a tenth of its speed for 3 s",
        15.0..18.0,
        45.0,
    );
    let server = server(QUEUE, &bad, |_| State::Slow(10.0));
    storm(&bad, 60).run(lab, &mut report, Some(chart), server);
    report.note(
        "The outage fills the queue; every request in it is answered after its client's time-out of 500 ms.\n\
         From then on retries are all that keep it full.",
    );
    report
}

fn slow(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let bad = seconds(15..25);
    // A queue of 200: a server that limits what it takes on.
    let server = server(200, &bad, |_| State::Slow(4.0));
    storm(&bad, 50).run(lab, &mut report, None, server);
    report
}

fn restart(lab: &Lab<'_>) -> Report {
    const INSTANCES: f64 = 10.0;

    let mut report = Report::default();
    let bad = seconds(15..35);
    let server = server(QUEUE, &bad, |_| {
        State::Partly(StatusCode::BAD_GATEWAY, 1.0 / INSTANCES)
    });
    storm(&bad, 45).run(lab, &mut report, None, server);
    report.note(
        "A proxy says 502 for the instance that is away; the next attempt goes to another one.",
    );
    report
}

fn crash_loop(lab: &Lab<'_>) -> Report {
    const CYCLE: u128 = 3000;

    let mut report = Report::default();
    let bad = seconds(15..35);
    let chart = Chart::new(
        "crash-loop",
        "A server crashes every 3 s for 20 s",
        15.0..35.0,
        45.0,
    );
    let server = server(500, &bad, |since| match since.as_millis() % CYCLE {
        ..1000 => DOWN,
        1000..2000 => State::Slow(3.0),
        _ => State::WELL,
    });
    storm(&bad, 60).run(lab, &mut report, Some(chart), server);
    report
}

fn scale_out(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let bad = seconds(15..30);
    report.note("20 clients, as before the outage:");
    let run = |storm: Storm<'_>, report: &mut Report| {
        let server = server(500, &bad, |_| State::Slow(10.0));
        storm.run(lab, report, None, server);
    };
    run(storm(&bad, 60), &mut report);

    report.note(
        "Someone scales out: 180 join from the third second of the outage to the eighth, with the traffic as it\n\
         was. Every one of them brings a floor of its own.",
    );
    let mut growing = storm(&bad, 60);
    growing.setup.joining = Some(Joining {
        processes: 180,
        over: seconds(18..23),
    });
    run(growing, &mut report);
    report
}
