//! Failures at random, blips, and sustained overload: what the numbers of the default were chosen by.

use super::{Lab, SECOND, Scenario, each, seconds};
use crate::{
    report::{Claim, Figure, Report, Table, mean},
    rules::{Policy, Rule},
    sim::{Delay, Setup, ample, shedding},
};
use http::StatusCode;
use std::time::Duration;

pub(super) const FAILURES: Scenario = Scenario {
    name: "random",
    about: "5 to 50 % of the attempts fail at random, one client of 1000 calls per second",
    is_quick: false,
    run: failures,
};

pub(super) const OVERLOAD: Scenario = Scenario {
    name: "overload",
    about: "a server is asked for 5 to 20 % more than it can do, and a rejection costs it a fifth",
    is_quick: false,
    run: overload,
};

const RPS: f64 = 1000.0;

/// 20 ms on average.
const LATENCY: Delay = Delay::Even(Duration::from_millis(10), Duration::from_millis(30));

const WARM: u32 = 10;
const END: u32 = 30;

const FAILED: StatusCode = StatusCode::INTERNAL_SERVER_ERROR;
const TOO_MUCH: StatusCode = StatusCode::SERVICE_UNAVAILABLE;

const PERCENT: [u32; 5] = [5, 10, 20, 30, 50];

/// Success in percent and attempts per call, for each of the percentages.
type Published = [(f64, f64); 5];

const FAILURE_RULES: &[(Rule, StatusCode, Option<Published>)] = &[
    (
        Rule::NoRetries,
        FAILED,
        Some([
            (95.1, 1.00),
            (90.4, 1.00),
            (80.1, 1.00),
            (70.2, 1.00),
            (50.2, 1.00),
        ]),
    ),
    (
        Rule::Unlimited,
        FAILED,
        Some([
            (99.99, 1.05),
            (99.9, 1.11),
            (99.2, 1.24),
            (97.2, 1.39),
            (87.7, 1.74),
        ]),
    ),
    (Rule::TowerTps, FAILED, None),
    (
        Rule::Finagle,
        FAILED,
        Some([
            (99.99, 1.05),
            (99.9, 1.11),
            (97.0, 1.21),
            (84.4, 1.21),
            (60.5, 1.21),
        ]),
    ),
    (
        Rule::BucketOfSuccesses,
        FAILED,
        Some([
            (99.95, 1.05),
            (97.9, 1.09),
            (86.4, 1.08),
            (75.3, 1.07),
            (52.4, 1.05),
        ]),
    ),
    (
        Rule::Grpc,
        FAILED,
        Some([
            (99.9, 1.05),
            (92.0, 1.02),
            (79.9, 1.00),
            (70.4, 1.00),
            (49.9, 1.00),
        ]),
    ),
    (
        Rule::Envoy,
        FAILED,
        Some([
            (99.5, 1.05),
            (97.0, 1.08),
            (87.9, 1.10),
            (77.4, 1.11),
            (56.1, 1.11),
        ]),
    ),
    (
        Rule::RefundAll,
        FAILED,
        Some([
            (100.0, 1.05),
            (99.9, 1.11),
            (98.9, 1.23),
            (86.2, 1.23),
            (54.9, 1.10),
        ]),
    ),
    (
        Rule::Default,
        FAILED,
        Some([
            (100.0, 1.05),
            (99.9, 1.11),
            (99.1, 1.24),
            (97.5, 1.39),
            (59.6, 1.20),
        ]),
    ),
    (
        Rule::Default,
        TOO_MUCH,
        Some([
            (100.0, 1.05),
            (99.9, 1.11),
            (93.1, 1.16),
            (79.3, 1.14),
            (55.1, 1.10),
        ]),
    ),
];

fn failures(lab: &Lab<'_>) -> Report {
    let mut setup = Setup::new(RPS, 1, SECOND * END);
    setup.policy = Policy::model();
    let mut report = Report::default();
    let head = PERCENT.map(|percent| format!("{percent} %"));
    let mut table = Table::new([
        "success % / attempts",
        &head[0],
        &head[1],
        &head[2],
        &head[3],
        &head[4],
    ]);
    let mut figures = Vec::new();
    for &(rule, status, published) in FAILURE_RULES {
        let name = match status {
            TOO_MUCH => format!("{rule}, all 503"),
            _ => rule.to_string(),
        };
        let mut cells = vec![name.clone()];
        for (place, percent) in PERCENT.into_iter().enumerate() {
            let failing = f64::from(percent) / 100.0;
            let runs = lab.runs(&setup, rule, |seed| {
                ample(seed, LATENCY, move |_, random| {
                    match random.happens(failing) {
                        true => status,
                        false => StatusCode::OK,
                    }
                })
            });
            let success = each(&runs, |run| run.success(seconds(WARM..END)));
            let load = each(&runs, |run| run.load(seconds(WARM..END)));
            cells.push(format!("{:.2} / {:.2}", mean(&success), mean(&load)));
            if rule == Rule::Default && status == FAILED && percent == 20 {
                let worst = success.iter().copied().fold(100.0, f64::min);
                report.claim(Claim::new(
                    "at 20 % random failures that say nothing of load, 98 % of the calls succeed",
                    worst >= 98.0,
                    format!("{worst:.2} % with the worst seed"),
                ));
            }
            if let Some(published) = published {
                let (published_success, published_load) = published[place];
                let what = format!("{name}, {percent} %");
                figures.push(Figure::success(
                    format!("{what}, success %"),
                    published_success,
                    success,
                ));
                figures.push(Figure::load(
                    format!("{what}, attempts"),
                    published_load,
                    load,
                ));
            }
        }
        table.row(cells);
    }
    report.table_first(table);
    report.figures_last(figures);
    report
}

const OFFERED: [f64; 3] = [1.05, 1.10, 1.20];

/// Success in percent and attempts per call, for each of them.
type PublishedOverload = [(f64, f64); 3];

const OVERLOAD_RULES: &[(Rule, Option<PublishedOverload>)] = &[
    (
        Rule::NoRetries,
        Some([(93.3, 1.00), (88.5, 1.00), (79.3, 1.00)]),
    ),
    (
        Rule::Unlimited,
        Some([(63.9, 2.21), (55.0, 2.35), (41.2, 2.54)]),
    ),
    (Rule::TowerTps, None),
    (Rule::Finagle, None),
    (Rule::Grpc, None),
    (
        Rule::Default,
        Some([(90.4, 1.16), (85.4, 1.15), (75.7, 1.13)]),
    ),
    (
        Rule::DefaultRefundingAll,
        Some([(85.5, 1.33), (80.7, 1.31), (71.9, 1.26)]),
    ),
];

fn overload(lab: &Lab<'_>) -> Report {
    const END: u32 = 40;

    let mut setup = Setup::new(RPS, 1, SECOND * END);
    setup.policy = Policy::model();
    let mut report = Report::default();
    let head = OFFERED.map(|offered| format!("{offered:.2} of capacity"));
    let mut table = Table::new(["success % / attempts", &head[0], &head[1], &head[2]]);
    let mut figures = Vec::new();
    let mut none = [0.0; 3];
    let mut worst = f64::NEG_INFINITY;
    for &(rule, published) in OVERLOAD_RULES {
        let mut cells = vec![rule.to_string()];
        for (place, offered) in OFFERED.into_iter().enumerate() {
            let runs = lab.runs(&setup, rule, |seed| {
                shedding(seed, RPS / offered, LATENCY, 0.2, 0.5)
            });
            let success = each(&runs, |run| run.success(seconds(WARM..END)));
            let load = each(&runs, |run| run.load(seconds(WARM..END)));
            cells.push(format!("{:.1} / {:.2}", mean(&success), mean(&load)));
            match rule {
                Rule::NoRetries => none[place] = mean(&success),
                Rule::Default => worst = worst.max(none[place] - mean(&success)),
                _ => {}
            }
            if let Some(published) = published {
                let (published_success, published_load) = published[place];
                let what = format!("{rule}, {offered:.2}");
                figures.push(Figure::success(
                    format!("{what}, success %"),
                    published_success,
                    success,
                ));
                figures.push(Figure::load(
                    format!("{what}, attempts"),
                    published_load,
                    load,
                ));
            }
        }
        table.row(cells);
    }
    report.table(table);
    report.note(
        "Retrying cannot help a server that has too much to do for good: no retries is the best rule here,\n\
         and the default loses the least of those that retry at all.",
    );
    report.claim(Claim::new(
        "in sustained overload, within 5 points of not retrying",
        worst <= 5.0,
        format!("{worst:.1} points at worst"),
    ));
    report.figures_last(figures);
    report
}
