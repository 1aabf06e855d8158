//! What matters is who calls: some of the requests, all at once, or many processes.

use super::{Lab, MS, SECOND, Scenario, seconds, storm::Storm};
use crate::{
    plot::Chart,
    report::Report,
    rules::{Policy, Rule},
    sim::{Arrivals, Delay, Queue, Setup, State, ample},
};
use http::StatusCode;
use std::time::Duration;

pub(super) const PARTIAL: Scenario = Scenario {
    name: "partial",
    about: "a fifth of the requests always fails for 20 s, the others never do",
    is_quick: false,
    run: partial,
};

pub(super) const HERD: Scenario = Scenario {
    name: "herd",
    about: "an overloaded server tells everybody to come back in 5 s",
    is_quick: false,
    run: herd,
};

pub(super) const FLEET: Scenario = Scenario {
    name: "fleet",
    about: "1000 small clients in an outage: a budget each against one for all of them",
    is_quick: false,
    run: fleet,
};

fn partial(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let mut setup = Setup::new(500.0, 20, SECOND * 45);
    setup.policy = Policy::default();
    setup.broken = 0.2;
    let bad = seconds(15..35);
    let rules = &[
        Rule::NoRetries,
        Rule::Unlimited,
        Rule::TowerTps,
        Rule::Finagle,
        Rule::Grpc,
        Rule::Breaker,
        Rule::Default,
    ];
    let storm = Storm::new(setup, bad.clone(), 500.0, rules);
    storm.run(lab, &mut report, None, |seed| {
        let bad = bad.clone();
        let latency = Delay::Even(10 * MS, 30 * MS);
        ample(seed, latency, move |ask, _| {
            match bad.contains(&ask.at) && ask.uri.path() == "/broken" {
                true => StatusCode::INTERNAL_SERVER_ERROR,
                false => StatusCode::OK,
            }
        })
    });
    report.note(
        "No retry can save them: the best rule is the one that adds the least, at 80 % success.",
    );
    report
}

fn herd(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let mut setup = Setup::new(0.0, 100, SECOND * 45);
    setup.arrivals = Arrivals::Closed {
        users: 1000,
        think: SECOND * 2,
    };
    let bad = seconds(15..18);
    let rules = &[
        Rule::NoRetries,
        Rule::Unlimited,
        Rule::TowerTps,
        Rule::Default,
        Rule::HoldOff,
    ];
    let storm = Storm::new(setup, bad.clone(), 500.0, rules);
    let chart = Chart::new(
        "herd",
        "A server says \"come back in 5 s\" for 3 s",
        15.0..18.0,
        35.0,
    );
    storm.run(lab, &mut report, Some(chart), |seed| {
        let bad = bad.clone();
        let state = move |at: Duration| match bad.contains(&at) {
            true => State::ComeBackIn(StatusCode::SERVICE_UNAVAILABLE, SECOND * 5),
            false => State::WELL,
        };
        Box::new(Queue::new(seed, 10, 10 * MS, 500, state))
    });
    report.note(
        "Closed loop: 1000 users who think for 2 s. The peak is over the 500 requests per second of quiet times.\n\
         tower::retry does not see the Retry-After; the layer spreads it by a fifth upwards.",
    );
    report
}

fn fleet(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let mut setup = Setup::new(1000.0, 1000, SECOND * 50);
    setup.policy = Policy::model();
    setup.network = Delay::Even(5 * MS, 15 * MS);
    let bad = seconds(15..30);
    let rules = &[
        Rule::NoRetries,
        Rule::Unlimited,
        Rule::TowerTps,
        Rule::Finagle,
        Rule::Default,
        Rule::Fleet,
    ];
    let storm = Storm::new(setup, bad.clone(), 1000.0, rules);
    let chart = Chart::new(
        "fleet",
        "1000 clients of one call per second, an outage of 15 s",
        15.0..30.0,
        40.0,
    );
    storm.run(lab, &mut report, Some(chart), |seed| {
        let bad = bad.clone();
        ample(seed, Delay::None, move |ask, _| {
            match bad.contains(&ask.at) {
                true => StatusCode::SERVICE_UNAVAILABLE,
                false => StatusCode::OK,
            }
        })
    });
    report.note(
        "\"One budget\" is one TokenBudget that all simulated processes share. Between real processes it is kept in\n\
         a store, which adds leases and the time of asking; those are not simulated.",
    );
    report
}
