//! A full outage, over one client, a hundred and a thousand.

use super::{Lab, MS, SECOND, Scenario, each, seconds};
use crate::{
    report::{Claim, Figure, Report, Table, mean},
    rules::{Policy, Rule},
    sim::{Delay, Setup, ample},
};
use http::StatusCode;
use std::{ops::Range, time::Duration};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "outage",
    about: "every answer is a failure for 30 s: attempts per call for 1, 100 and 1000 clients",
    is_quick: false,
    run,
};

const RPS: f64 = 1000.0;

/// Long enough for the budgets to know the traffic.
const WARM: u32 = 15;
const OUTAGE: u32 = 30;

/// One second of one run is 1000 calls, and 32 more or less by chance: twice that is what a figure
/// published of it is known to.
const FIRST_SECOND: f64 = 0.065;
const LATER: f64 = 0.03;

const CLIENTS: [usize; 3] = [1, 100, 1000];

/// Attempts per call in the first second, the first ten and the last ten, for each number of clients.
type Published = [[f64; 3]; 3];

const RULES: &[(Rule, Option<Published>)] = &[
    (
        Rule::Unlimited,
        Some([[2.94, 3.00, 3.00], [2.95, 3.00, 3.00], [2.90, 2.99, 3.00]]),
    ),
    (Rule::TowerTps, None),
    (
        Rule::Finagle,
        Some([[2.94, 1.21, 1.21], [2.95, 2.22, 2.21], [2.90, 2.99, 3.00]]),
    ),
    (
        Rule::BucketOfSuccesses,
        Some([[1.00, 1.00, 1.00], [1.51, 1.05, 1.00], [2.78, 1.50, 1.00]]),
    ),
    (
        Rule::Grpc,
        Some([[1.00, 1.00, 1.00], [1.32, 1.03, 1.00], [2.51, 1.30, 1.00]]),
    ),
    (
        Rule::Aws,
        Some([[1.03, 1.00, 1.00], [2.92, 1.35, 1.00], [2.90, 2.99, 1.13]]),
    ),
    (
        Rule::Envoy,
        Some([[1.11, 1.11, 1.11], [2.87, 2.92, 2.93], [2.90, 2.99, 3.00]]),
    ),
    (
        Rule::RefundAll,
        Some([[1.01, 1.00, 1.00], [1.94, 1.10, 1.01], [2.93, 1.99, 1.10]]),
    ),
    (
        Rule::Default,
        Some([[1.19, 1.02, 1.00], [1.97, 1.10, 1.01], [2.86, 1.96, 1.10]]),
    ),
    (Rule::Fleet, None),
];

fn windows() -> [Range<Duration>; 3] {
    [
        seconds(WARM..WARM + 1),
        seconds(WARM..WARM + 10),
        seconds(WARM + OUTAGE - 10..WARM + OUTAGE),
    ]
}

fn run(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let head = [
        "attempts per call",
        "clients",
        "first 1 s",
        "first 10 s",
        "last 10 s",
    ];
    let mut table = Table::new(head);
    let mut figures = Vec::new();
    for &(rule, published) in RULES {
        for (place, clients) in CLIENTS.into_iter().enumerate() {
            let mut setup = Setup::new(RPS, clients, SECOND * (WARM + OUTAGE));
            setup.network = Delay::Even(5 * MS, 15 * MS);
            setup.policy = Policy::model();
            let runs = lab.runs(&setup, rule, |seed| {
                ample(seed, Delay::None, |ask, _| match ask.at < SECOND * WARM {
                    true => StatusCode::OK,
                    false => StatusCode::INTERNAL_SERVER_ERROR,
                })
            });
            let loads = windows().map(|window| each(&runs, |run| run.load(window.clone())));
            let cells = loads.iter().map(|loads| format!("{:.2}", mean(loads)));
            table.row(
                [rule.to_string(), clients.to_string()]
                    .into_iter()
                    .chain(cells),
            );
            if let Some(published) = published {
                let names = ["first 1 s", "first 10 s", "last 10 s"];
                for ((name, published), loads) in names.into_iter().zip(published[place]).zip(loads)
                {
                    let plural = if clients == 1 { "" } else { "s" };
                    let what = format!("{rule}, {clients} client{plural}, {name}");
                    let tolerance = if name == names[0] {
                        FIRST_SECOND
                    } else {
                        LATER
                    };
                    figures.push(Figure::new(what, published, tolerance, loads));
                }
            }
            if rule == Rule::Default && clients == 1 {
                let later = seconds(WARM + 1..WARM + OUTAGE);
                let loads = each(&runs, |run| run.load(later.clone()));
                let worst = loads.into_iter().fold(0.0, f64::max);
                report.claim(Claim::new(
                    "one client adds at most 5 % to an outage after its first second",
                    worst <= 1.05,
                    format!("{worst:.3} attempts per call"),
                ));
            }
        }
    }
    report.table_first(table);
    report.figures_last(figures);
    report
}
