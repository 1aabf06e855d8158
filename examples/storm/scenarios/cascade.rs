//! "Addressing Cascading Failures", Site Reliability Engineering, chapter 22: a server a hundredth
//! over its capacity.
//!
//! The published figures are of averages. After exactly a second those who were rejected together would
//! come back together, and be rejected again: they wait for a second on average.

use super::{Lab, SECOND, Scenario, each, seconds};
use crate::{
    report::{Figure, Report, Table, mean},
    rules::{Limit, Policy, Rule, Waits},
    sim::{Answer, Ask, Server, Setup},
};
use http::StatusCode;
use std::time::Duration;

pub(super) const SCENARIO: Scenario = Scenario {
    name: "sre-cascade",
    about: "10,100 calls per second to a server that rejects above 10,000, retried 1 s later",
    run,
};

const OFFERED: f64 = 10_100.0;
const CAPACITY: f64 = 10_000.0;

/// The load of published rates: 0.03 of what is offered.
const TOLERANCE: f64 = 0.03 * OFFERED;

/// Rejects what finds more waiting than it does in 30 ms.
fn server() -> Box<dyn Server> {
    const QUEUE: f64 = 0.03 * CAPACITY;

    let (mut queued, mut last) = (0.0_f64, Duration::ZERO);
    Box::new(move |ask: Ask<'_>| {
        let passed = ask.at.saturating_sub(last);
        last = last.max(ask.at);
        queued = (queued - passed.as_secs_f64() * CAPACITY).max(0.0);
        let accepted = queued < QUEUE;
        queued += f64::from(u8::from(accepted));
        let status = match accepted {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        Answer::new(status, ask.at)
    })
}

fn run(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let mut table = Table::new(["requests per second at the server", "in second 10", "at the end", "success"]);
    let mut figures = Vec::new();
    let cases = [
        ("retried for ever", Rule::Unlimited, 10_000, 30),
        ("3 attempts", Rule::Unlimited, 3, 60),
        ("3 attempts, budget of 10 %", Rule::TenthOfCalls, 3, 40),
        ("3 attempts, this crate", Rule::Default, 3, 30),
    ];
    for (name, rule, attempts, end) in cases {
        let mut setup = Setup::new(OFFERED, 1, SECOND * end);
        let policy = Policy::default().attempts(attempts).waits(Waits::Around(SECOND));
        setup.policy = policy.total_timeout(Limit::None);
        // Those that are retried for ever do not end.
        setup.patience = SECOND / 10;
        let runs = lab.runs(&setup, rule, |_| server());
        let tenth = each(&runs, |run| run.arrived(&seconds(9..10)) as f64);
        let last = each(&runs, |run| run.arrived(&seconds(end - 10..end)) as f64 / 10.0);
        let success = each(&runs, |run| run.success(seconds(5..end - 5)));
        table.row([
            name.into(),
            format!("{:.0}", mean(&tenth)),
            format!("{:.0}", mean(&last)),
            match attempts {
                3 => format!("{:.2} %", mean(&success)),
                _ => "-".into(),
            },
        ]);
        match (rule, attempts) {
            (Rule::Unlimited, 3) => figures.push(Figure::new(format!("{name}, requests per second"), 12_700.0, TOLERANCE, last)),
            (Rule::Unlimited, _) => {
                let growth = each(&runs, |run| {
                    let late = run.arrived(&seconds(end - 5..end)) as f64 / 5.0;
                    let early = run.arrived(&seconds(5..10)) as f64 / 5.0;
                    (late - early) / f64::from(end - 10)
                });
                figures.push(Figure::new(format!("{name}, growth per second"), 100.0, 10.0, growth));
            }
            (Rule::TenthOfCalls, _) => figures.push(Figure::new(format!("{name}, requests per second"), 11_100.0, TOLERANCE, last)),
            _ => {}
        }
    }
    report.table(table);
    report.note("The budget bounds the loop, it does not remove it: a hundredth too much stays too much.");
    report.figures_last(figures);
    report
}
