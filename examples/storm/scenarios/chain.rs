//! Chains of services: what layers of retries multiply to, and what a deadline bounds.

use super::{Lab, MS, SECOND, Scenario};
use crate::{
    report::{Claim, Figure, Report, Table},
    rules::{Policy, Rule, Waits},
    sim::{Chain, Delay, Link, Place, Sent, Watch, ample, ask, paused},
};
use http::{StatusCode, Uri};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::time::{Instant, sleep_until};

pub(super) const LAYERS: Scenario = Scenario {
    name: "layers",
    about: "requests at a leaf that always fails, for one call at the edge",
    is_quick: true,
    run: layers,
};

pub(super) const CHAIN: Scenario = Scenario {
    name: "chain",
    about: "edge, A, B, leaf: three layers of the defaults, 1 s for a call, the leaf is away for 5 s",
    is_quick: false,
    run: chain,
};

/// Layers, attempts of each, requests without skipping and with it.
const MULTIPLIED: &[(usize, u32, u32, u32)] = &[(3, 3, 27, 3), (3, 4, 64, 4), (5, 3, 243, 3)];

fn layers(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let mut figures = Vec::new();
    for &(depth, attempts, multiplied, skipping) in MULTIPLIED {
        for (cooperate, published) in [(false, multiplied), (true, skipping)] {
            lab.progress.run(lab.scenario, "layers");
            let policy = Policy::default().attempts(attempts).waits(Waits::Fixed(MS));
            let run = Run {
                chain: Chain {
                    layers: (0..depth)
                        .map(|_| policy.layer(Rule::Unlimited, lab.seeds[0]))
                        .collect(),
                    work: Duration::ZERO,
                    cooperate,
                },
                leaf: |_| false,
                every: SECOND,
                calls: 1,
            };
            let leaf = run
                .go(lab.seeds[0])
                .0
                .iter()
                .filter(|sent| sent.hop + 1 == depth)
                .count();
            let how = if cooperate {
                "lower layers skip"
            } else {
                "every layer retries"
            };
            let what = format!("{depth} layers of {attempts} attempts, {how}");
            figures.push(Figure::exact(
                what,
                published,
                u32::try_from(leaf).unwrap_or(u32::MAX),
            ));
        }
    }
    report.figures_last(figures);
    report
}

const TOTAL: Duration = SECOND;
const DEPTH: usize = 3;
const CALLS: u32 = 1500;

fn chain(lab: &Lab<'_>) -> Report {
    let mut report = Report::default();
    let head = [
        "layers",
        "DeadlineLayer",
        "leaf requests per call, away",
        "success after",
        "sent after the deadline",
    ];
    let mut table = Table::new(head);
    for (rule, name) in [
        (Rule::Unlimited, "3 attempts, no budget"),
        (Rule::Default, "this crate"),
    ] {
        for cooperate in [false, true] {
            let (mut leaf, mut after, mut late) = (0, 0, 0);
            for &seed in lab.seeds {
                lab.progress.run(lab.scenario, name);
                let policy = Policy::default().total_timeout(crate::rules::Limit::After(TOTAL));
                let run = Run {
                    chain: Chain {
                        layers: (0..DEPTH).map(|_| policy.layer(rule, seed)).collect(),
                        work: 20 * MS,
                        cooperate,
                    },
                    leaf: |at| !(SECOND * 5..SECOND * 10).contains(&at),
                    every: 10 * MS,
                    calls: CALLS,
                };
                let (sent, saved) = run.go(seed);
                leaf += sent
                    .iter()
                    .filter(|sent| sent.hop + 1 == DEPTH && (500..1000).contains(&sent.call))
                    .count();
                after += (1010..CALLS).filter(|call| saved.contains(call)).count();
                late += sent.iter().filter(|sent| is_late(sent, 10 * MS)).count();
            }
            let seeds = lab.seeds.len();
            table.row([
                name.into(),
                if cooperate { "yes" } else { "no" }.into(),
                format!("{:.2}", leaf as f64 / (500 * seeds) as f64),
                format!("{:.1} %", 100.0 * after as f64 / (490 * seeds) as f64),
                late.to_string(),
            ]);
            if cooperate && rule == Rule::Default {
                report.claim(Claim::new(
                    "no attempt of any hop is stamped with more than the caller has left",
                    late == 0,
                    format!("{late} attempts"),
                ));
            }
        }
    }
    report.table_first(table);
    report
}

/// Whether an attempt was sent after the deadline of its call, or says that there is more time than that.
fn is_late(sent: &Sent, every: Duration) -> bool {
    let deadline = every * sent.call + TOTAL;
    sent.at + sent.left.unwrap_or_default() > deadline
}

struct Run {
    chain: Chain,
    /// Whether the leaf is well at a time.
    leaf: fn(Duration) -> bool,
    every: Duration,
    calls: u32,
}

impl Run {
    /// Makes the calls, and returns all attempts of all hops, and the calls that succeeded.
    fn go(self, seed: u64) -> (Vec<Sent>, Vec<u32>) {
        paused(seed, async move {
            let start = Instant::now();
            let watch = Watch::new(start);
            let well = self.leaf;
            let server = ample(
                seed,
                Delay::Even(10 * MS, 30 * MS),
                move |ask, _| match well(ask.at) {
                    true => StatusCode::OK,
                    false => StatusCode::SERVICE_UNAVAILABLE,
                },
            );
            let place = Arc::new(Mutex::new(Place::new(Delay::None, server, seed)));
            let edge = self.chain.build(Link::new(place, start), &watch);
            let mut calls = Vec::new();
            for call in 0..self.calls {
                sleep_until(start + self.every * call).await;
                let uri = format!("http://server/{call}").parse::<Uri>();
                calls.push(tokio::spawn(ask(edge.clone(), uri.expect("a valid URI"))));
            }
            let mut saved = Vec::new();
            for (call, status) in (0..).zip(calls) {
                if status.await.is_ok_and(|status| status.is_success()) {
                    saved.push(call);
                }
            }
            (watch.take(), saved)
        })
    }
}
